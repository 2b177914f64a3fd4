/*
 * Checksums: XXH64 for our own files, CRC-32C for the formats of others.
 *
 * XXH64 is that of Yann Collet's specification (xxHash fast digest algorithm, section "XXH64
 * Algorithm Description"), with seed 0: 64 bits, read as a number. Fast, and against accidents; no
 * guard against malice.
 *
 * Files depend on it, and so does the division of images that have no splits of their own
 * (data/split.h): it must never change.
 */
#ifndef ZONAL_CORE_CHECKSUM_H
#define ZONAL_CORE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* XXH64. */
uint64_t zonal__checksum_of(const void *bytes, size_t n);

/* The same for bytes that come piece by piece; the pieces' sizes do not matter. */
typedef struct zonal__checksum {
    uint64_t lane[4];
    uint64_t count;   /* bytes so far */
    uint8_t rest[32]; /* the last count mod 32 of them, which fill no block yet */
} zonal__checksum;

void zonal__checksum_init(zonal__checksum *checksum);
void zonal__checksum_add(zonal__checksum *checksum, const void *bytes, size_t n);
uint64_t zonal__checksum_value(const zonal__checksum *checksum); /* more may be added after */

/* CRC-32C (Castagnoli), as in RFC 3720, section 12.1 and appendix B.4: the polynomial 0x1edc6f41,
 * bits from the lowest on, the remainder begun with and taken in ones. It is what other programs'
 * formats have; our own files have the checksum above, which is faster. */
uint32_t zonal__crc32c(const void *bytes, size_t n);

#endif
