"""Old names of recipe keys and values still work, and print the new name once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from motet.core.errors import ConfigError
from motet.experiment.recipe import renamed_keys
from motet.experiment.recipe.recipe_files import baseline_config, load_recipe, merge_settings, parse_overrides
from motet.experiment.recipe.renamed_keys import update_names
from motet.experiment.recipe.run_config import RunConfig


@pytest.fixture(autouse=True)
def tables(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tables that do not change from release to release."""
    keys = {
        "patience": "wait_policy",
        "patience.worth": "wait_policy.staleness_exponent",
        "model.length": "model.max_tokens",
    }
    monkeypatch.setattr(renamed_keys, "RENAMED_KEYS", keys)
    values = {"algorithm.type": {"averaging": "fedavg"}, "model.name": {"small": "tiny"}, "track": {"wb": "wandb"}}
    monkeypatch.setattr(renamed_keys, "RENAMED_VALUES", values)
    for function in (renamed_keys.print_rename_once, renamed_keys._new_names):
        function.cache_clear()
    yield
    for function in (renamed_keys.print_rename_once, renamed_keys._new_names):
        function.cache_clear()


def test_an_old_section_and_an_old_key_in_it_get_their_new_names() -> None:
    assert update_names({"patience": {"worth": 0.5, "quorum": 1}}) == {
        "wait_policy": {"staleness_exponent": 0.5, "quorum": 1}
    }


def test_a_number_is_not_an_old_section(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=r"unknown option 'patience'.* Did you mean 'evaluation.patience'"):
        load_recipe("toy-classification", ["patience=1"])
    assert "wait_policy" not in capsys.readouterr().err


def test_an_old_key_in_a_section_with_its_new_name_is_renamed() -> None:
    assert update_names({"wait_policy": {"worth": 0.5}}) == {"wait_policy": {"staleness_exponent": 0.5}}


def test_a_key_moves_out_of_its_section() -> None:
    assert update_names({"transport": {"precision": "float32", "workers": 0}}) == {
        "transport": {"workers": 0},
        "precision": "float32",
    }


def test_settings_with_new_names_stay_as_they_are_and_print_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"rounds": 3, "wait_policy": {"quorum": 1}, "algorithm": {"type": "fedavg"}, "model": {"freeze": ["x"]}}
    assert update_names(settings) == settings
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("algorithm", ["averaging", {"type": "averaging"}])
def test_an_old_value_is_replaced_in_both_ways_to_write_a_section(algorithm: object) -> None:
    expected = "fedavg" if isinstance(algorithm, str) else {"type": "fedavg"}
    assert update_names({"algorithm": algorithm}) == {"algorithm": expected}


def test_an_old_value_in_a_list_is_replaced() -> None:
    assert update_names({"track": ["wb", "mlflow"]}) == {"track": ["wandb", "mlflow"]}


def test_groups_and_baselines_are_updated_like_the_top_level() -> None:
    settings = {
        "groups": [{"model": "small"}, {"model": {"length": 8}}],
        "baselines": {"b": {"patience": {"worth": 1}}},
    }
    assert update_names(settings) == {
        "groups": [{"model": "tiny"}, {"model": {"max_tokens": 8}}],
        "baselines": {"b": {"wait_policy": {"staleness_exponent": 1}}},
    }


def test_each_old_name_is_reported_once_with_the_new_name(capsys: pytest.CaptureFixture[str]) -> None:
    update_names({"patience": {"quorum": 1}})
    update_names({"patience": {"quorum": 1}, "algorithm": "averaging"})
    assert capsys.readouterr().err.splitlines() == [
        "motet: recipe key 'patience' is now 'wait_policy'; the old name will stop working in the next release.",
        "motet: recipe value 'algorithm.type=averaging' is now 'algorithm.type=fedavg'; "
        "the old name will stop working in the next release.",
    ]


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"patience": {}, "wait_policy": {}}, "'patience' and 'wait_policy'"),
        (
            {"wait_policy": {"worth": 1, "staleness_exponent": 1}},
            "'wait_policy.worth' and 'wait_policy.staleness_exponent'",
        ),
    ],
)
def test_an_old_and_a_new_key_together_are_an_error(settings: dict[str, object], names: str) -> None:
    with pytest.raises(ConfigError, match=names):
        update_names(settings)


def test_a_recipe_with_an_old_key_can_be_changed_by_its_new_name(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("patience: {quorum: 0.5, worth: 0.5}\nbaselines: {other: {patience: {quorum: 0.9}}}\n")
    config = load_recipe(str(recipe), ["wait_policy.quorum=0.7"])
    assert (config.wait_policy.quorum, config.wait_policy.staleness_exponent) == (0.7, 0.5)
    assert baseline_config(config, "other").wait_policy.quorum == 0.9


def test_settings_from_the_command_line_may_use_old_names() -> None:
    assert parse_overrides(["patience.quorum=0.5"]) == {"wait_policy": {"quorum": 0.5}}
    assert load_recipe("toy-classification", ["patience.quorum=0.5"]).wait_policy.quorum == 0.5


def test_layers_of_a_suite_may_mix_old_and_new_names() -> None:
    layers = merge_settings({"patience": {"quorum": 0.5}}, {"wait_policy": {"timeout": 3}})
    assert layers == {"wait_policy": {"quorum": 0.5, "timeout": 3}}


def test_the_configuration_of_an_older_run_is_still_read() -> None:
    assert RunConfig.from_settings("old", {"patience": {"quorum": 0.5, "worth": None}}).wait_policy.quorum == 0.5
