"""Federated averaging: three devices train on their own digits, and only parameters leave them.

    python train.py dist && python federated.py dist/libdigits.so

Each client is a process with the exported library (ctypes_example.py; no pullback in it). In each round the aggregator
sends its parameters, clients train on their own images and send back what changed, and the aggregator adds the mean of
the changes, weighted by the number of images. A client that dies or is late is left out; the others go on.
"""

import multiprocessing
import sys
from multiprocessing.connection import wait

import numpy as np
from ctypes_example import BATCH, PIXELS, Digits

ROUNDS, EPOCHS = 6, 5
SECONDS = 60.0  # that a client may take for a round
DIES = (2, 3)  # client 2 crashes in round 3


def client(number, path, images, labels, connection):
    """What runs on a device: rounds until the aggregator hangs up."""
    model = Digits(path)
    rng = np.random.default_rng(number)
    while (message := connection.recv()) is not None:
        round_number, parameters = message
        model.set_parameters(parameters)
        for _ in range(EPOCHS):
            order = rng.permutation(len(images))
            for first in range(0, len(order) - BATCH + 1, BATCH):
                rows = order[first : first + BATCH]
                model.step(images[rows], labels[rows])
            if (number, round_number) == DIES:
                sys.exit(1)  # a flat battery
        connection.send((len(images), model.parameters() - parameters))
    model.close()


def answers(clients, seconds):
    """What the clients send that are still there, each waited for; the others are taken off the list."""
    found, waiting = [], {connection: process for process, connection in clients}
    while waiting and (ready := wait(list(waiting), seconds)):
        for connection in ready:
            process = waiting.pop(connection)
            try:
                found.append(connection.recv())
            except (EOFError, OSError):
                clients.remove((process, connection))
    for connection, process in waiting.items():  # late
        process.terminate()
        clients.remove((process, connection))
    return found


def main(path):
    images = np.fromfile("images.bin", np.float32).reshape(-1, PIXELS)
    labels = np.fromfile("labels.bin", np.int64)
    held_out, rows = np.arange(0, len(images), 5), np.flatnonzero(np.arange(len(images)) % 5)
    shares = np.split(rows, [120, 190])  # three parts of different sizes
    context = multiprocessing.get_context("spawn")
    clients = []
    for number, own in enumerate(shares):
        here, there = context.Pipe()
        process = context.Process(target=client, args=(number, path, images[own], labels[own], there))
        process.start()
        there.close()  # so that the client's death is the end of the pipe
        clients.append((process, here))

    model = Digits(path)
    rng = np.random.default_rng(0)
    model.set_parameters(rng.normal(0, 0.1, model.parameters().size).astype(np.float32))  # nothing is learnt yet
    for round_number in range(1, ROUNDS + 1):
        parameters = model.parameters()
        for _, connection in clients:
            connection.send((round_number, parameters))
        given = answers(clients, SECONDS)
        total = sum(count for count, _ in given)
        for count, change in given:
            model.add_parameters(change, count / total)
        right = np.mean(model.predict(images[held_out]).argmax(1) == labels[held_out])
        print(f"round {round_number}: {len(given)} clients, {total} images, accuracy {right:.3f}", flush=True)
    for process, connection in clients:
        connection.send(None)
        process.join()
    model.call("save", b"federated.safetensors")
    model.close()


if __name__ == "__main__":
    main(sys.argv[1])
