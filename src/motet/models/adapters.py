"""Adapters (LoRA, DoRA) through peft: the pretrained model is frozen and stored once; only the adapters are trained.

Adapters are injected into the module itself, so that parameter roles, packing and export work as for any other model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from motet.core.errors import ConfigError, first_line
from motet.core.install_hint import install_command
from motet.models.model_config import AdapterConfig
from motet.models.parameter_roles import ParameterRoles
from motet.models.prompt_tuning import find_prompt, save_prompt

ADAPTER_NAME = "default"  # peft's name of the only adapter
_NEW_ROLES = ("head", "pooler")  # trained in full by tasks that put a new head on the model


def add_adapters(
    module: nn.Module, roles: ParameterRoles, config: AdapterConfig, *, train_head: bool = True
) -> ParameterRoles:
    """Inject adapters and freeze everything else, except for a new head if `train_head` is set.

    Return the new roles.
    """
    try:
        from peft import inject_adapter_in_model
    except ImportError:
        raise ConfigError(f"model.adapter needs the package peft. Run: {install_command('adapters')}") from None
    targets = _find_targets(module, roles, config)
    inject_adapter_in_model(peft_config(config, targets, _are_transposed(module, targets)), module)
    new_roles = {name: _adapted_role(name, roles.roles) for name, _ in module.named_parameters()}
    for name, parameter in module.named_parameters():
        is_new = train_head and new_roles[name].startswith(_NEW_ROLES)
        parameter.requires_grad_("lora_" in name or is_new)
    return ParameterRoles(new_roles, roles.embeddings_path, roles.layers_path)


def peft_config(config: AdapterConfig, targets: Sequence[str], is_transposed: bool) -> Any:
    """Return the peft configuration of an adapter. GPT-2's layers (Conv1D) have transposed weights."""
    from peft import LoraConfig

    return LoraConfig(
        r=config.rank,
        lora_alpha=config.scaling_alpha,
        lora_dropout=config.dropout,
        use_dora=config.type == "dora",
        target_modules=list(targets),
        fan_in_fan_out=is_transposed,
    )


def _find_targets(module: nn.Module, roles: ParameterRoles, config: AdapterConfig) -> list[str]:
    """Return the paths of the linear layers to adapt."""
    linear = {
        name: submodule
        for name, submodule in module.named_modules()
        if type(submodule).__name__ in ("Linear", "Conv1D")
        and ".layers." in f".{roles.roles.get(f'{name}.weight', '')}"
    }
    if not linear:
        raise ConfigError(
            f"model.adapter: {type(module).__name__} has no linear layers to adapt; expected a transformer. Remove "
            "model.adapter, or choose another model."
        )
    known = sorted({name.rpartition(".")[2] for name in linear})
    for target in config.targets:
        if target not in known:
            raise ConfigError(
                f"model.adapter.targets: there is no linear layer '{target}'; there are {', '.join(known)}."
            )
    targets = [name for name in linear if not config.targets or name.rpartition(".")[2] in config.targets]
    smallest = min(min(linear[name].weight.shape) for name in targets)
    if config.rank > smallest:
        raise ConfigError(
            f"model.adapter.rank is {config.rank}, but the smallest adapted layer has {smallest} inputs or outputs; "
            "choose a smaller rank."
        )
    return targets


def _are_transposed(module: nn.Module, targets: Sequence[str]) -> bool:
    layers: list[Any] = [module.get_submodule(target) for target in targets]
    return all(type(getattr(layer, "base_layer", layer)).__name__ == "Conv1D" for layer in layers)


def _adapted_role(name: str, roles: Mapping[str, str]) -> str:
    """An adapter has the role of the layer it adapts."""
    layer, adapter, _ = name.partition(".lora_")
    return f"{roles[f'{layer}.weight']}.adapter" if adapter else roles[name.replace(".base_layer.", ".")]


def merge_adapters(module: nn.Module) -> nn.Module:
    """Merge adapters into the weights of a module, in place, so that it can be loaded without peft."""
    if find_prompt(module) is not None:
        raise ConfigError("a trained prompt is not part of the weights, so it cannot be merged; leave out --merged.")
    for path, submodule in list(module.named_modules()):
        if hasattr(submodule, "base_layer") and hasattr(submodule, "merge"):
            layer: Any = submodule
            layer.merge()
            parent, _, name = path.rpartition(".")
            setattr(module.get_submodule(parent), name, layer.get_base_layer())
    return module


def save_adapter(module: Any, base: str, folder: Path) -> None:
    """Write a peft adapter directory (adapter_model.safetensors, adapter_config.json) for the pretrained model `base`."""
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file

    prompt = find_prompt(module)
    if prompt is not None:
        save_prompt(module, prompt, base, folder)
        return
    settings = module.peft_config[ADAPTER_NAME]
    settings.base_model_name_or_path, settings.inference_mode, settings.task_type = base, True, "CAUSAL_LM"
    # Embeddings are those of the base. Without this, peft asks the hub whether they have grown, and warns if it cannot.
    state = get_peft_model_state_dict(module, adapter_name=ADAPTER_NAME, save_embedding_layers=False)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {f"base_model.model.{name}": tensor.contiguous() for name, tensor in state.items()}
    save_file(tensors, str(folder / "adapter_model.safetensors"), metadata={"format": "pt"})
    settings.save_pretrained(folder)


def load_adapter(module: Any, folder: Path, base: str) -> Any:
    """Return a module with the adapters of a peft directory."""
    from peft import PeftConfig, PeftModel, PromptTuningConfig

    try:
        settings = PeftConfig.from_pretrained(str(folder))
        width = module.get_input_embeddings().embedding_dim
        if (
            isinstance(settings, PromptTuningConfig) and settings.token_dim != width
        ):  # peft would fail at the first text
            raise ValueError(f"its words have {width} numbers, and the trained prompt's {settings.token_dim}")
        return PeftModel.from_pretrained(module, str(folder)).eval()
    except (RuntimeError, ValueError, KeyError) as error:
        reason = first_line(error)
        if isinstance(error, RuntimeError) and "\n" in str(error):  # torch lists the parameters below a headline
            reason = str(error).splitlines()[1].strip()
        raise ConfigError(
            f"the adapters in '{folder}' do not fit the model '{base}' ({reason}); expected the model that "
            "they were trained with. Name it with --base."
        ) from None
