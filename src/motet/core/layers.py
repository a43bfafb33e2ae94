"""A choice of parameters, said in the model's own terms: embeddings, layers 0-5, head, norms."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from motet.core.errors import LayoutError

# A part is where a tensor stands in its model: an optional side, a place, an optional mark.
#   embeddings · layers.3 · layers.3.norm · encoder.layers.0.adapter · decoder.embeddings · final.norm · pooler · head
PLACES = ("embeddings", "layers", "final", "pooler", "head")
_PART = re.compile(r"(?:(encoder|decoder)\.)?(embeddings|layers\.(\d+)|final|pooler|head)(?:\.(norm|adapter))?")
_TERM = re.compile(r"(?:(encoder|decoder) )?(embeddings|layers?|final|pooler|head)(?: (\d+)(?:[-–](\d*))?)?")
_LOWER = re.compile(r"lower (\d+|half)")
_WORDS = "all, embeddings, layers 0-5, lower 6, lower half, pooler, head, final, encoder, decoder, norms, adapters, name:<pattern>"


@dataclass(frozen=True)
class Layers:
    """The tensors any of the terms names or, if inverted, all others."""

    terms: tuple[str, ...]
    inverted: bool = False

    @staticmethod
    def of(*terms: str) -> Layers:
        for term in terms:
            _matcher(term)
        return Layers(tuple(" ".join(t.split()).lower() if not t.startswith("name:") else t for t in terms))

    @staticmethod
    def all() -> Layers:
        return Layers(("all",))

    @staticmethod
    def none() -> Layers:
        return Layers(())

    def __invert__(self) -> Layers:
        return Layers(self.terms, not self.inverted)

    def within(self, parts: Sequence[str]) -> Layers:
        """The same choice with `lower 6` said in the layers that a model of these parts has."""
        return Layers(tuple(plain for term in self.terms for plain in _plain(term, parts)), self.inverted)

    def chosen(self, name: str, part: str) -> bool:
        return any(_matcher(term)(name, part) for term in self.terms) is not self.inverted

    def check(self, names: Sequence[str], parts: Sequence[str], what: str) -> None:
        """Every term must name something of this model: a selection that matches nothing is a mistake."""
        for term in self.terms:
            plain = Layers((term,)).within(parts)
            if not any(plain.chosen(n, p) for n, p in zip(names, parts, strict=True)):
                raise LayoutError(f"{what}: '{term}' names nothing in this model, which has {describe_roles(parts)}.")

    def __str__(self) -> str:
        said = ", ".join(self.terms) or "nothing"
        return f"all but {said}" if self.inverted else said


def describe_roles(parts: Iterable[str]) -> str:
    """`embeddings, layers 0-5, pooler, head`."""
    places: dict[str, list[int]] = {}
    for part in parts:
        side, place, index, _ = _parsed(part)
        places.setdefault(f"{side} {place}".strip(), []).extend([index] if index is not None else [])
    return ", ".join(f"{p} {min(ks)}-{max(ks)}" if ks else p for p, ks in places.items()) or "no parameters"


def _parsed(part: str) -> tuple[str, str, int | None, str]:
    match = _PART.fullmatch(part)
    if match is None:
        raise LayoutError(
            f"'{part}' is not a part of a model; expected one of {', '.join(PLACES)}, with side and mark."
        )
    side, place, index, mark = match.groups()
    return side or "", place.partition(".")[0], None if index is None else int(index), mark or ""


def _plain(term: str, parts: Iterable[str]) -> list[str]:
    """`lower 6`: the first six layers, a decoder's after its encoder's, or `half`; when all, also what stands on them."""
    lower = _LOWER.fullmatch(term)
    if lower is None:
        return [term]
    depth: dict[str, int] = {}
    for side, _, index, _ in map(_parsed, parts):
        if index is not None:
            depth[side] = max(depth.get(side, 0), index + 1)
    left, terms = sum(depth.values()) // 2 if lower[1] == "half" else int(lower[1]), []
    for side in sorted(depth, reverse=True):  # an encoder before its decoder
        if min(left, depth[side]) > 0:
            terms.append(f"{side} layers 0-{min(left, depth[side]) - 1}".strip())
        left -= depth[side]
    if left > 0:
        raise LayoutError(
            f"layers: '{term}' is asked of a model that has {sum(depth.values())} layers; choose at most those."
        )
    return [*terms, "final", "pooler", "head"] if left == 0 else terms


def _matcher(term: str) -> _Term:
    if term.startswith("name:"):
        return _Term(pattern=term.removeprefix("name:"))
    word = " ".join(term.split()).lower()
    if word in ("all", "encoder", "decoder", "norms", "adapters"):
        return _Term(word=word)
    if _LOWER.fullmatch(word):
        return _Term(word="lower")  # means something only within a model
    match = _TERM.fullmatch(word)
    if match is None or (match[3] is not None and not match[2].startswith("layer")):
        raise LayoutError(f"layers: '{term}' is not a choice of layers; expected one of: {_WORDS}.")
    side, place, first, last = match.groups()
    place = "layers" if place.startswith("layer") else place
    low = int(first) if first is not None else None
    high = low if last is None else int(last) if last else 10**9
    return _Term(side=side or "", place=place, low=low, high=high)


@dataclass(frozen=True)
class _Term:
    word: str = ""
    pattern: str = ""
    side: str = ""
    place: str = ""
    low: int | None = None
    high: int | None = None

    def __call__(self, name: str, part: str) -> bool:
        if self.pattern:
            return re.fullmatch(self.pattern, name) is not None
        side, place, index, mark = _parsed(part)
        match self.word:
            case "all":
                return True
            case "lower":
                raise LayoutError(
                    "layers: 'lower 6' depends on how many layers there are; ask for it `within` a model."
                )
            case "norms":
                return mark == "norm"
            case "adapters":
                return mark == "adapter"
            case "decoder":
                return side == "decoder"
            case "encoder":  # what is left of an encoder when its task is taken away
                return side != "decoder" and place in ("embeddings", "layers", "final")
        if place != self.place or (self.side and side != self.side):
            return False
        return self.low is None or (index is not None and self.low <= index <= (self.high or self.low))
