"""Reaching a daemon on another machine through the system's `ssh`. No torch, no screen."""
