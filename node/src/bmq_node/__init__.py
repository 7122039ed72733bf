"""The one composition: controller, broker and proxy put together, in one process or apart, with their configuration,
admin address and life.
"""
