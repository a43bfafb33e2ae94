"""Values to bytes and back: a version, a JSON head, raw tensors. No code travels, and nothing is unpickled."""

from motet.wire.format import Size, frame, measure, pack, packed, unframe, unpack

__all__ = ["Size", "frame", "measure", "pack", "packed", "unframe", "unpack"]
