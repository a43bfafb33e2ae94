"""Deployments: the server and the clients are separate processes, usually on different machines."""
