"""`python -m services.secrets` runs the service."""

from libs.process import run
from services.secrets.server import serve
from services.secrets.settings import SecretsSettings

if __name__ == "__main__":
    run("secrets", SecretsSettings, serve)
