"""`python -m bmq_sim`."""

from bmq_sim.main import start

if __name__ == "__main__":
    start()
