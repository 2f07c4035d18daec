"""Generate the gRPC stubs as a package tree, so that tools can follow imports: `generate.py PROTO_DIR OUT_DIR`."""

import shutil
import sys
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc


def main(source: Path, target: Path) -> int:
    """Replace `target`/seed by what `source` says now; returns protoc's exit code."""
    protos = sorted(str(path) for path in source.rglob("*.proto"))
    fresh = target / ".fresh"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    code = protoc.main(
        [
            "protoc",
            f"-I{source}",
            f"-I{files('grpc_tools') / '_proto'}",
            f"--python_out={fresh}",
            f"--pyi_out={fresh}",
            f"--grpc_python_out={fresh}",
            *protos,
        ]
    )
    if code == 0:
        for folder in {parent for path in fresh.rglob("*.py") for parent in path.relative_to(fresh).parents}:
            if folder != Path("."):
                (fresh / folder / "__init__.py").touch()
        # Renamed into place: a running process never sees half of a package.
        shutil.rmtree(target / "seed", ignore_errors=True)
        (fresh / "seed").rename(target / "seed")
    shutil.rmtree(fresh, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
