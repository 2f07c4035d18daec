"""Every test runs with the project's root and the generated stubs on the path (see pyproject.toml)."""
