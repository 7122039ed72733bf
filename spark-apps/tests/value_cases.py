"""What the tests of value formats share: decoding a list of values after a journey through pickle, as a worker gets its
decoder.
"""

import pickle
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from bmq_spark.values import Decoder


def decode(decoder: Decoder, values: Sequence[bytes | None]) -> tuple[list[Any], list[str | None]]:
    """Values and reasons, after the checks that hold for every format: lengths, types, and that nothing has both or
    neither.
    """
    shipped: Decoder = pickle.loads(pickle.dumps(decoder))
    assert shipped.arrow_type == decoder.arrow_type
    decoded = shipped.decode(pa.array(values, type=pa.binary()))
    decoded.values.validate(full=True)
    assert decoded.values.type == decoder.arrow_type
    assert decoded.reasons.type == pa.string()
    assert len(decoded.values) == len(decoded.reasons) == len(values)
    for value, is_decoded, why in zip(
        values, decoded.values.is_valid().to_pylist(), decoded.reasons.to_pylist(), strict=True
    ):
        assert is_decoded == (value is not None and why is None)
    return decoded.values.to_pylist(), decoded.reasons.to_pylist()
