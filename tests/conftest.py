"""Settings every test shares."""

from hypothesis import settings

# No deadline: a shared machine stalls at will. Not derandomized: every run looks at new examples, and the printed
# blob reproduces a failure.
settings.register_profile("ci", deadline=None, derandomize=False, print_blob=True)
settings.load_profile("ci")
