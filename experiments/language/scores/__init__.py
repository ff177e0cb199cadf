"""How answers are scored, one module per task: ``score(prediction, example)`` gives named numbers in [0, 1].

The first name of ``NAMES`` is the task's score in tables. What cannot be read is wrong: no scorer is loosened.
"""
