"""`python -m services.sessions` runs the service."""

from libs.process import run
from services.sessions.server import serve
from services.sessions.settings import SessionsSettings

if __name__ == "__main__":
    run("sessions", SessionsSettings, serve)
