// Trains the model of relay_training.py: train WEIGHTS STEPS reads the weights, and writes them back.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <vector>

#include "circle_step.h"

constexpr int BATCH = 64, HIDDEN = 16;
constexpr int SIZES[] = {2 * HIDDEN, HIDDEN, HIDDEN * HIDDEN, HIDDEN, HIDDEN, 1};  // kernels and biases of three layers

int main(int argc, char **argv) {
    if (argc != 3) return std::fprintf(stderr, "usage: train WEIGHTS STEPS\n"), 2;
    std::vector<std::vector<float>> weights, updated;
    std::ifstream file(argv[1], std::ios::binary);
    for (int size : SIZES) {
        weights.emplace_back(size), updated.emplace_back(size);
        file.read(reinterpret_cast<char *>(weights.back().data()), size * sizeof(float));
    }
    if (!file) return std::fprintf(stderr, "%s is too short\n", argv[1]), 1;

    std::mt19937 random(7);
    std::uniform_real_distribution<float> coordinate(-1, 1);
    const int steps = std::atoi(argv[2]);
    float data[BATCH][2], labels[BATCH], loss = 0, first = 0;
    for (int step = 0; step < steps; ++step) {
        for (int i = 0; i < BATCH; ++i) {
            const float x = data[i][0] = coordinate(random), y = data[i][1] = coordinate(random);
            labels[i] = x * x + y * y < 0.6f;
        }
        auto &w = weights, &u = updated;
        if (circle_step(labels, data[0], w[0].data(), w[1].data(), w[2].data(), w[3].data(), w[4].data(), w[5].data(),
                        &loss, u[0].data(), u[1].data(), u[2].data(), u[3].data(), u[4].data(), u[5].data()))
            return std::fprintf(stderr, "%s\n", circle_step_error()), 1;
        weights.swap(updated);
        if (step == 0) first = loss;
    }
    std::printf("loss in C++: %.3f at first, %.3f after %d steps\n", first, loss, steps);

    std::ofstream out(argv[1], std::ios::binary);
    for (const auto &w : weights) out.write(reinterpret_cast<const char *>(w.data()), w.size() * sizeof(float));
    return out.good() ? 0 : 1;
}
