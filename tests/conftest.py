"""What holds for every test."""

from hypothesis import settings

# a machine that is busy is slow, and no test is about time
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
