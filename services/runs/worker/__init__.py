"""The worker role: claims runs and executes them."""
