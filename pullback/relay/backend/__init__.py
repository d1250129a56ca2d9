"""Executors: what runs programs of relay, and what is built of them."""
