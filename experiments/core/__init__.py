"""The base classes of tasks, components, methods and configurations, from which plug-ins derive.

Imports no torch, since configurations are checked, named and planned without it.
"""
