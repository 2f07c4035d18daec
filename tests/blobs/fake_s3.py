"""An S3 that keeps objects in memory: as much of its HTTP as an object store client uses."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from aiohttp import web

_XMLNS = "http://s3.amazonaws.com/doc/2006-03-01/"


class FakeS3:
    """Objects by key below any bucket. `away` makes every request fail; `requests` counts (method, kind)."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.parts: dict[str, dict[int, bytes]] = {}
        self.requests: list[str] = []
        self.away = False

    async def start(self) -> str:
        """Serve; returns the endpoint's URL."""
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{bucket}/{key:.+}", self._handle)
        app.router.add_post("/{bucket}", self._delete)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.Response:
        key, upload = request.match_info["key"], request.query.get("uploadId", "")
        if self.away:
            return web.Response(status=403, text="<Error><Code>AccessDenied</Code></Error>")
        body = await request.read()
        kind = "part" if upload else "uploads" if "uploads" in request.query else "object"
        self.requests.append(f"{request.method} {kind}")
        match request.method, kind:
            case "PUT", "object":
                self.objects[key] = body
                return _tagged()
            case "POST", "uploads":
                upload = f"u{len(self.parts)}"
                self.parts[upload] = {}
                return _xml("InitiateMultipartUploadResult", Bucket="b", Key=key, UploadId=upload)
            case "PUT", "part":
                self.parts[upload][int(request.query["partNumber"])] = body
                return _tagged()
            case "POST", "part":
                parts = self.parts.pop(upload)
                self.objects[key] = b"".join(parts[number] for number in sorted(parts))
                return _xml("CompleteMultipartUploadResult", Location="l", Bucket="b", Key=key, ETag='"e"')
            case "DELETE", "part":
                self.parts.pop(upload, None)
                return web.Response(status=204)
            case _:
                return self._get(key)

    async def _delete(self, request: web.Request) -> web.Response:
        if self.away:
            return web.Response(status=403, text="<Error><Code>AccessDenied</Code></Error>")
        assert "delete" in request.query
        answer = ElementTree.Element("DeleteResult", xmlns=_XMLNS)
        for key in ElementTree.fromstring(await request.text()).iter():
            if key.tag.endswith("Key"):
                self.objects.pop(key.text or "", None)
                ElementTree.SubElement(ElementTree.SubElement(answer, "Deleted"), "Key").text = key.text
        return web.Response(body=ElementTree.tostring(answer), content_type="application/xml")

    def _get(self, key: str) -> web.Response:
        if key not in self.objects:
            return web.Response(status=404, text="<Error><Code>NoSuchKey</Code></Error>")
        return web.Response(body=self.objects[key], headers={"ETag": '"e"', "Last-Modified": _DATE})


_DATE = "Mon, 30 Nov 2026 00:00:00 GMT"


def _tagged() -> web.Response:
    return web.Response(headers={"ETag": '"e"'})


def _xml(name: str, **fields: Any) -> web.Response:
    root = ElementTree.Element(name, xmlns=_XMLNS)
    for field, value in fields.items():
        ElementTree.SubElement(root, field).text = value
    return web.Response(body=ElementTree.tostring(root), content_type="application/xml")
