"""The port to the world, and its builds: real libp2p sockets, and a simulation on virtual time."""
