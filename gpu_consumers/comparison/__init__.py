"""Two models on one text, through the engine that serves: how well, how much alike, and how fast."""
