"""One partition, as a pure machine: no I/O, no clock, no event loop. The shell around it is in bmq_broker's other
modules.
"""
