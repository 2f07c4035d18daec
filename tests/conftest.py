"""What all tests share. The project's root and the generated stubs are on the path (see tools/install)."""

from hypothesis import HealthCheck, settings

# A busy machine must not fail a property: how long an example takes is no property of ours (bench/ measures).
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("house")
