#include "core/checksum.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are taken as they lie in memory");

enum { BLOCK = 32 };

static const uint64_t MULTIPLIER = 0x9e3779b97f4a7c15; /* 2^64 over the golden ratio, odd */

static uint64_t mix(uint64_t state, uint64_t word) {
    uint64_t product = (state ^ word) * MULTIPLIER;
    return product << 29 | product >> 35;
}

/* Four lanes, because one would wait for its multiplication at every word. */
static void mix_block(uint64_t lane[4], const uint8_t *block) {
    uint64_t word[4];
    memcpy(word, block, sizeof word);
    for (int k = 0; k < 4; k++) lane[k] = mix(lane[k], word[k]);
}

void zonal__checksum_init(zonal__checksum *checksum) {
    memset(checksum, 0, sizeof *checksum);
    for (int k = 0; k < 4; k++) checksum->lane[k] = (uint64_t)(k + 1) * MULTIPLIER;
}

void zonal__checksum_add(zonal__checksum *checksum, const void *bytes, size_t n) {
    const uint8_t *at = bytes;
    uint64_t lane[4];
    size_t held = checksum->count % BLOCK;
    checksum->count += n;
    if (held > 0) {
        size_t taken = n < BLOCK - held ? n : BLOCK - held;
        if (taken > 0) memcpy(checksum->rest + held, at, taken);
        if (held + taken < BLOCK) return;
        mix_block(checksum->lane, checksum->rest);
        at += taken;
        n -= taken;
    }
    memcpy(lane, checksum->lane, sizeof lane); /* in registers: bytes could alias the struct */
    for (; n >= BLOCK; at += BLOCK, n -= BLOCK) mix_block(lane, at);
    memcpy(checksum->lane, lane, sizeof lane);
    if (n > 0) memcpy(checksum->rest, at, n);
}

uint64_t zonal__checksum_value(const zonal__checksum *checksum) {
    uint64_t lane[4], sum = checksum->count;
    size_t held = checksum->count % BLOCK;
    memcpy(lane, checksum->lane, sizeof lane);
    if (held > 0) {
        uint8_t last[BLOCK] = {0};
        memcpy(last, checksum->rest, held);
        mix_block(lane, last);
    }
    for (int k = 0; k < 4; k++) sum = mix(sum, lane[k]);
    return sum ^ sum >> 32;
}

uint64_t zonal__checksum_of(const void *bytes, size_t n) {
    zonal__checksum checksum;
    zonal__checksum_init(&checksum);
    zonal__checksum_add(&checksum, bytes, n);
    return zonal__checksum_value(&checksum);
}

/* Four bits at a time: table[k] is the remainder of the four bits k. */
uint32_t zonal__crc32c(const void *bytes, size_t n) {
    static const uint32_t table[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1,
                                       0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
                                       0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                       0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};
    const uint8_t *at = bytes;
    uint32_t sum = ~(uint32_t)0;
    for (size_t i = 0; i < n; i++) {
        sum ^= at[i];
        sum = sum >> 4 ^ table[sum & 15];
        sum = sum >> 4 ^ table[sum & 15];
    }
    return ~sum;
}
