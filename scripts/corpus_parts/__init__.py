"""The parts of scripts/corpus: what the compiler makes of recorded graphs, frozen and compared."""
