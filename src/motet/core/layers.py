"""Select parameters by their role in the model: embeddings, layers 0-5, head, norms."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from motet.core.errors import LayoutError
from motet.core.messages import message

# A role says where a tensor sits in its model: an optional stack, a block and an optional kind.
#   embeddings · layers.3 · layers.3.norm · encoder.layers.0.adapter · decoder.embeddings · final.norm · pooler · head
BLOCKS = ("embeddings", "layers", "final", "pooler", "head")
_ROLE = re.compile(r"(?:(encoder|decoder)\.)?(embeddings|layers\.(\d+)|final|pooler|head)(?:\.(norm|adapter))?")
_TERM = re.compile(r"(?:(encoder|decoder) )?(embeddings|layers?|final|pooler|head)(?: (\d{1,9})(?:[-–](\d{0,9}))?)?")
_LOWER = re.compile(r"lower (\d{1,9}|half)")
_VALID_TERMS = (
    "all, embeddings, layers 0-5, lower 6, lower half, pooler, head, final, encoder, decoder, norms, adapters, "
    "name:<shell pattern>"
)


@message
@dataclass(frozen=True)
class Layers:
    """A selection of tensors: those that match any of the terms or, if inverted, all others."""

    terms: tuple[str, ...]
    inverted: bool = False

    @staticmethod
    def parse(*terms: str) -> Layers:
        """Check and normalize terms such as `layers 0-5`, `lower half` and `norms`."""
        for term in terms:
            _parse_term(term)
        return Layers(tuple(term if term.startswith("name:") else _normalize(term) for term in terms))

    @staticmethod
    def all() -> Layers:
        return Layers(("all",))

    @staticmethod
    def none() -> Layers:
        return Layers(())

    def __invert__(self) -> Layers:
        return Layers(self.terms, not self.inverted)

    def resolve(self, roles: Sequence[str]) -> Layers:
        """Replace `lower 6` and `lower half` by the layers they stand for in a model with these roles."""
        return Layers(tuple(plain for term in self.terms for plain in _resolve_lower(term, roles)), self.inverted)

    def matches(self, name: str, role: str) -> bool:
        return any(_parse_term(term)(name, role) for term in self.terms) is not self.inverted

    def check(self, names: Sequence[str], roles: Sequence[str], option: str) -> None:
        """Raise an error if any term matches nothing in the model. `option` names the setting in the error."""
        for term in self.terms:
            layers = Layers((term,)).resolve(roles)
            if not any(layers.matches(name, role) for name, role in zip(names, roles, strict=True)):
                advice = " A pattern is one of a shell, such as name:*query*." if term.startswith("name:") else ""
                advice += " LoRA adapters are added with model.adapter.rank=8." if "lora_" in term else ""
                raise LayoutError(
                    f"{option}: '{term}' matches nothing in this model; expected layers out of {describe_roles(roles)}."
                    f"{advice}"
                )

    def __str__(self) -> str:
        text = ", ".join(self.terms) or "nothing"
        return f"all except {text}" if self.inverted else text


def describe_roles(roles: Iterable[str]) -> str:
    """Summarize roles for a reader, e.g. `embeddings, layers 0-5, pooler, head`."""
    layer_indices: dict[str, list[int]] = {}
    for role in roles:
        stack, block, index, _ = _parse_role(role)
        layer_indices.setdefault(f"{stack} {block}".strip(), []).extend([index] if index is not None else [])
    return ", ".join(f"{b} {min(ks)}-{max(ks)}" if ks else b for b, ks in layer_indices.items()) or "no parameters"


def _parse_role(role: str) -> tuple[str, str, int | None, str]:
    """Split a role into stack, block, layer index and kind."""
    match = _ROLE.fullmatch(role)
    if match is None:
        raise LayoutError(
            f"'{role}' is not a role of a parameter; expected one of {', '.join(BLOCKS)}, "
            "such as layers.3.norm or decoder.embeddings."
        )
    stack, block, index, kind = match.groups()
    return stack or "", block.partition(".")[0], None if index is None else int(index), kind or ""


def _resolve_lower(term: str, roles: Iterable[str]) -> list[str]:
    """Resolve `lower 6` to the first six layers, counting an encoder's layers before its decoder's.

    If these are all the layers, the blocks above them (final, pooler, head) are included.
    """
    lower = _LOWER.fullmatch(term)
    if lower is None:
        return [term]
    depths: dict[str, int] = {}
    for stack, _, index, _ in map(_parse_role, roles):
        if index is not None:
            depths[stack] = max(depths.get(stack, 0), index + 1)
    remaining, terms = sum(depths.values()) // 2 if lower[1] == "half" else int(lower[1]), []
    for stack in sorted(depths, reverse=True):  # "encoder" before "decoder"
        if min(remaining, depths[stack]) > 0:
            terms.append(f"{stack} layers 0-{min(remaining, depths[stack]) - 1}".strip())
        remaining -= depths[stack]
    if remaining > 0:
        depth = sum(depths.values())
        raise LayoutError(f"layers: '{term}' is more than this model's {depth} layers; use at most 'lower {depth}'.")
    return [*terms, "final", "pooler", "head"] if remaining == 0 else terms


def _normalize(term: str) -> str:
    return " ".join(term.split()).lower()


def _parse_term(term: str) -> _Term:
    if term.startswith("name:"):
        return _Term(pattern=term.removeprefix("name:"))
    word = _normalize(term)
    if word in ("all", "encoder", "decoder", "norms", "adapters"):
        return _Term(word=word)
    if _LOWER.fullmatch(word):
        return _Term(word="lower")
    match = _TERM.fullmatch(word)
    if match is None or (match[3] is not None and not match[2].startswith("layer")):
        raise LayoutError(f"layers: '{term}' is not a selection of layers; expected one of: {_VALID_TERMS}.")
    stack, block, first, last = match.groups()
    block = "layers" if block.startswith("layer") else block
    if first is None:
        return _Term(stack=stack or "", block=block)
    end = int(first) + 1 if last is None else int(last) + 1 if last else sys.maxsize
    return _Term(stack=stack or "", block=block, indices=range(int(first), end))


@dataclass(frozen=True)
class _Term:
    word: str = ""
    pattern: str = ""
    stack: str = ""
    block: str = ""
    indices: range | None = None  # of layers; None: all

    def __call__(self, name: str, role: str) -> bool:
        if self.pattern:  # with * and ?; a regular expression can take forever, and recipes come from servers too
            return fnmatchcase(name, self.pattern)
        stack, block, index, kind = _parse_role(role)
        match self.word:
            case "all":
                return True
            case "lower":
                raise LayoutError(
                    "layers: 'lower 6' depends on the model's number of layers; call Layers.resolve(roles) first."
                )
            case "norms":
                return kind == "norm"
            case "adapters":
                return kind == "adapter"
            case "decoder":
                return stack == "decoder"
            case "encoder":  # without the pooler and the head, which belong to the task
                return stack != "decoder" and block in ("embeddings", "layers", "final")
        if block != self.block or (self.stack and stack != self.stack):
            return False
        return self.indices is None or index in self.indices
