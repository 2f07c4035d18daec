"""DAG-JSON."""

import pytest

from libs.client import dagjson
from libs.wire import Link, cid_dag_cbor

CID = cid_dag_cbor(b"x")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":{"/":{"bytes":"aGk"}}}', {"a": b"hi"}),
        ('{"/":{"bytes":""}}', b""),
        (f'[{{"/":"{CID}"}}]', [Link.parse(CID)]),
        ('{"a":[1,1.5,null,true,"x"]}', {"a": [1, 1.5, None, True, "x"]}),
    ],
)
def test_both_ways(text: str, value: object) -> None:
    assert dagjson.loads(text) == value
    assert dagjson.loads(dagjson.dumps(value)) == value


@pytest.mark.parametrize("text", ['{"/": 1}', '{"/": "nonsense"}', '{"/": {"bytes": "*"}}', "{", '{"/": {"x": "y"}}'])
def test_what_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        dagjson.loads(text)


def test_padding_is_welcome() -> None:
    assert dagjson.loads('{"/":{"bytes":"aGk="}}') == b"hi"
