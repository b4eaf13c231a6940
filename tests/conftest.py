"""What holds for every test."""

pytest_plugins = ["habits"]

try:
    from hypothesis import settings
except ModuleNotFoundError:  # in OpenRLHF's environment, whose tests do without
    pass
else:
    # a machine that is busy is slow, and no test is about time
    settings.register_profile("untimed", deadline=None)
    settings.load_profile("untimed")
