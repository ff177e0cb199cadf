"""Score answers, one module per task: ``score(prediction, example)`` returns named numbers in [0, 1].

The first name of ``NAMES`` is the task's score in tables. An answer that cannot be parsed is wrong.
"""
