"""The tests. This file keeps out packages of this name that a dependency may install beside us."""
