"""A forward pass in a mode of its own."""


def hard_output(learner, *args, **kwargs):
    """What the retained components give, as they are deployed."""
    with learner.mode("hard"):
        return learner(*args, **kwargs)
