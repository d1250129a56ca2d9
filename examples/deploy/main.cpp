// The same in C++: c++ -std=c++17 -O2 main.cpp -Idist dist/libdigits.a -pthread -o main
//                  ./main images.bin labels.bin digits.safetensors
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "digits.hpp"

template <class T> static std::vector<T> read_file(const char *path)
{
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    if (!file)
        throw std::runtime_error(std::string(path) + ": cannot be read");
    std::vector<T> values(static_cast<std::size_t>(file.tellg()) / sizeof(T));
    file.seekg(0);
    file.read(reinterpret_cast<char *>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(T)));
    return values;
}

int main(int argc, char **argv)
try {
    if (argc != 4) {
        std::cerr << "usage: main IMAGES LABELS CHECKPOINT\n";
        return 2;
    }
    const auto images = read_file<float>(argv[1]);
    const auto labels = read_file<std::int64_t>(argv[2]);
    const auto rows = static_cast<std::int64_t>(labels.size());
    const digits_column columns[] = {{images.data(), DIGITS_FLOAT32}, {labels.data(), DIGITS_INT64}};

    digits_cpp::model model;
    if (std::ifstream(argv[3]))
        model.load(argv[3]);
    model.set_hyperparameter("lr", 1e-3);
    std::vector<std::int32_t> order(labels.size());
    digits_run_options options = {};
    options.epochs = 3;
    options.order = order.data();
    model.run(columns, rows, options);
    const auto [loss, accuracy] = model.evaluate(columns, rows);
    std::printf("after %lld steps: loss %.4f, accuracy %.3f\n", static_cast<long long>(model.steps()), loss, accuracy);

    // A step on a batch of its own choice: the first rows.
    const digits_cpp::span<const float> batch(images.data(), digits_cpp::model::batch * DIGITS_INPUT_ROW);
    const digits_cpp::span<const std::int64_t> classes(labels.data(), digits_cpp::model::batch);
    std::printf("one more step: loss %.4f\n", model.step(batch, classes));

    std::vector<float> scores(labels.size() * DIGITS_OUTPUT_ROW);
    model.predict(images, scores);
    const auto best = std::max_element(scores.begin(), scores.begin() + DIGITS_OUTPUT_ROW);
    std::printf("the first is a %d\n", static_cast<int>(best - scores.begin()));
    model.save(argv[3]);
} catch (const std::exception &error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
}
