"""JavaScript peers to talk with, and the way to start and command them."""
