/* Order: NumPy's random generator PCG64, seeded as np.random.PCG64(seed), and the permutations of its Generator.
 *
 * Sources: O'Neill, PCG: A family of simple fast space-efficient statistically good algorithms for random number
 * generation (2014); O'Neill's seed_seq_fe, as NumPy's SeedSequence has it.
 */
#include "instance.h"

/* ---- 128 bits: words are high, low --------------------------------------------------------------------------- */

static void add_to(uint64_t to[2], const uint64_t value[2])
{
    to[1] += value[1];
    to[0] += value[0] + (to[1] < value[1]);
}

/* The upper word of a product. */
static uint64_t product_high(uint64_t a, uint64_t b)
{
    uint64_t a_low = a & 0xffffffff, a_high = a >> 32, b_low = b & 0xffffffff, b_high = b >> 32;
    uint64_t low = a_low * b_low, first = a_high * b_low + (low >> 32);
    uint64_t second = a_low * b_high + (first & 0xffffffff);
    return a_high * b_high + (first >> 32) + (second >> 32);
}

static void multiply(uint64_t to[2], const uint64_t factor[2])
{
    to[0] = product_high(to[1], factor[1]) + to[0] * factor[1] + to[1] * factor[0];
    to[1] *= factor[1];
}

/* ---- PCG64: XSL-RR 128/64 ------------------------------------------------------------------------------------ */

static void advance(pb_random *random)
{
    static const uint64_t multiplier[2] = {2549297995355413924u, 4865540595714422341u};
    multiply(random->state, multiplier);
    add_to(random->state, random->increment);
}

uint64_t pb_random_next(pb_random *random)
{
    uint64_t folded, turn;
    advance(random);
    folded = random->state[0] ^ random->state[1];
    turn = random->state[0] >> 58;
    return folded >> turn | folded << ((64 - turn) & 63);
}

static uint32_t next_word(pb_random *random)
{
    uint64_t both;
    if (random->has_word) {
        random->has_word = 0;
        return random->word;
    }
    both = pb_random_next(random);
    random->has_word = 1;
    random->word = (uint32_t)(both >> 32);
    return (uint32_t)both;
}

/* A number from 0 to `most`, all equally likely: the first that is not larger, of as many bits. */
static uint32_t next_up_to(pb_random *random, uint32_t most)
{
    uint32_t mask = most, number;
    for (int shift = 1; shift < 32; shift *= 2)
        mask |= mask >> shift;
    do
        number = next_word(random) & mask;
    while (number > most);
    return number;
}

void pb_random_permutation(pb_random *random, int32_t *order, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        order[i] = i;
    for (int32_t i = count - 1; i > 0; i--) {
        int32_t other = (int32_t)next_up_to(random, (uint32_t)i), value = order[other];
        order[other] = order[i];
        order[i] = value;
    }
}

/* ---- SeedSequence -------------------------------------------------------------------------------------------- */

enum { POOL = 4 };

static uint32_t hashed(uint32_t value, uint32_t *constant, uint32_t factor)
{
    value ^= *constant;
    *constant *= factor;
    value *= *constant;
    return value ^ value >> 16;
}

static uint32_t mixed(uint32_t a, uint32_t b)
{
    uint32_t value = 0xca01f9ddu * a - 0x4973f715u * b;
    return value ^ value >> 16;
}

/* Four numbers that follow from the seed. */
static void spread_seed(uint64_t seed, uint64_t numbers[4])
{
    const uint32_t entropy[POOL] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t pool[POOL], constant = 0x43b0d7e5u;
    for (int i = 0; i < POOL; i++)
        pool[i] = hashed(entropy[i], &constant, 0x931e8875u);
    for (int from = 0; from < POOL; from++)
        for (int to = 0; to < POOL; to++)
            if (from != to)
                pool[to] = mixed(pool[to], hashed(pool[from], &constant, 0x931e8875u));
    constant = 0x8b51f9ddu;
    for (int i = 0; i < 4; i++) {
        uint32_t low = hashed(pool[2 * i % POOL], &constant, 0x58f38dedu);
        numbers[i] = low | (uint64_t)hashed(pool[(2 * i + 1) % POOL], &constant, 0x58f38dedu) << 32;
    }
}

void pb_random_seed(pb_random *random, uint64_t seed)
{
    uint64_t numbers[4];
    spread_seed(seed, numbers);
    *random = (pb_random){.increment = {numbers[2] << 1 | numbers[3] >> 63, numbers[3] << 1 | 1}};
    advance(random);
    add_to(random->state, numbers);
    advance(random);
}
