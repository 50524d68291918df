"""Support vector classification as a normalised probability model (Sollich 2002)."""
