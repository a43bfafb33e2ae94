"""The JSON Schema of recipes accepts what Motet accepts, and describes every key."""

from __future__ import annotations

import dataclasses
import json
from importlib import resources
from typing import Any

import jsonschema
import pytest
import yaml

from motet.cli import app
from motet.experiment.build.component_builders import resolve_defaults
from motet.experiment.commands.recipe_schema import recipe_schema
from motet.experiment.recipe.recipe_files import list_recipes, load_recipe
from motet.experiment.recipe.run_config import RunConfig


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = recipe_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def errors(validator: Any, recipe: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(recipe)]


def test_every_shipped_recipe_is_valid_with_its_defaults_too(validator: Any) -> None:
    for name in list_recipes():
        text = resources.files("motet.recipes").joinpath(f"{name}.yaml").read_text("utf-8")
        assert errors(validator, yaml.safe_load(text)) == [], name
        settings = resolve_defaults(load_recipe(name)).to_dict()
        assert errors(validator, json.loads(json.dumps(settings))) == [], name


@pytest.mark.parametrize(
    "recipe",
    [
        {"codec": ["top_k", "int8"]},
        {"codec": {"up": [{"top_k": {"share": 0.1}}, "int8"], "down": "float16"}},
        {"partition": {"clients": 5}, "transport": {"workers": 0}},
        {"task": {"class_weights": {"yes": 2}}, "groups": [{"clients": 2, "model": "tiny", "data": "toy-pairs"}]},
        {"baselines": {"alone": {"algorithm": "isolated"}, "same": None}, "track": "tensorboard"},
        {"solver": {"lr": "5e-5"}, "server": {"type": "adam", "lr": 0.01}, "secure": "secagg"},
    ],
)
def test_short_forms_are_valid_for_the_schema_and_for_motet(validator: Any, recipe: dict[str, Any]) -> None:
    assert errors(validator, recipe) == []
    RunConfig.from_settings("test", recipe)


@pytest.mark.parametrize(
    "recipe",
    [
        {"rounds": "many"},
        {"algoritm": "fedavg"},
        {"algorithm": "fedagv"},
        {"algorithm": {"type": "fedprox", "nu": 1}},
        {"task": {"class_weights": "equal"}},
        {"solver": {"lr": "high"}},
        {"baselines": {"alone": {"rounds": "many"}}},
        {"groups": [{"clients": "all"}]},
    ],
)
def test_mistakes_are_invalid(validator: Any, recipe: dict[str, Any]) -> None:
    assert errors(validator, recipe) != []


def test_every_key_has_a_meaning(validator: Any) -> None:
    properties = validator.schema["properties"]
    assert {field.name for field in dataclasses.fields(RunConfig)} == set(properties)
    for name in ("data", "model", "cohort", "evaluation", "checkpoint", "wait_policy", "solver"):
        without = [key for key, value in properties[name]["properties"].items() if not value.get("description")]
        assert without == [], name


def test_the_command_prints_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    app(args=["schema"], prog_name="motet", standalone_mode=False)
    assert json.loads(capsys.readouterr().out) == recipe_schema()
