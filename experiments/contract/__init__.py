"""What a task, a component, a method and a run's configuration are to each other; what plug-ins derive from.

No torch is imported: configurations are checked, named and planned without it.
"""
