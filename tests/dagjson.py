"""Reading the vectors and examples: DAG-JSON, with the notations of `envelopes.json` for integers and floats."""

import base64
import json
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).parent / "vectors"


def load(path: str) -> Any:
    """A file below `tests/vectors`, as Python values."""
    return from_dag_json(json.loads((VECTORS / path).read_text()))


def from_dag_json(value: Any) -> Any:
    if isinstance(value, list):
        return [from_dag_json(x) for x in value]
    if not isinstance(value, dict):
        return value
    special = value.get("/") if list(value) == ["/"] else None
    if isinstance(special, dict):
        if "bytes" in special:
            text = special["bytes"]
            return base64.b64decode(text + "=" * (-len(text) % 4))
        if "int" in special:
            return int(special["int"])
        if "float64" in special:
            return float(special["float64"])
    return {key: from_dag_json(x) for key, x in value.items()}
