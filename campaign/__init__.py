"""What we promise, put to the proof: right probabilities, files that survive, clear errors (`python -m campaign`)."""
