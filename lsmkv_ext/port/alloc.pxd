# malloc, realloc and free for background work: the buffers of a table builder, the index of an open table. Large pieces have
# pages of their own (port/pages) and go back to the system when freed. glibc would keep them: each large piece that is freed
# raises its mmap threshold.
#
# A sanitizer build takes everything from malloc, where the sanitizer detects an access past the end.

from lsmkv_ext.port.pages cimport lsm_map_pages

cdef extern from * nogil:
    """
    #ifndef LSMKV_ALLOC_H
    #define LSMKV_ALLOC_H
    #include <stdint.h>
    #include <stdlib.h>
    #include <string.h>
    #if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    #define LSM_ALLOC_MAPPED SIZE_MAX
    #else
    #define LSM_ALLOC_MAPPED ((size_t)64 << 10)
    #endif
    /* in front of every piece */
    typedef struct { size_t mapped, size; } LsmAllocHead;

    static inline LsmAllocHead* lsm_alloc_head(void* p) { return (LsmAllocHead*)p - 1; }

    static inline void* lsm_alloc(size_t n) {
        LsmAllocHead* head;
        size_t total = n + sizeof(LsmAllocHead);
        if (total < n) return NULL;
        if (total < LSM_ALLOC_MAPPED) {
            head = (LsmAllocHead*)malloc(total);
            if (head == NULL) return NULL;
            head->mapped = 0;
        } else {
            total = (total + 4095) & ~(size_t)4095;
            if (total < n) return NULL;
            head = (LsmAllocHead*)lsm_map_pages(total);
            if (head == NULL) return NULL;
            head->mapped = total;
        }
        head->size = n;
        return head + 1;
    }

    static inline void lsm_free(void* p) {
        LsmAllocHead* head;
        if (p == NULL) return;
        head = lsm_alloc_head(p);
        if (head->mapped) lsm_unmap_pages(head, head->mapped);
        else free(head);
    }

    static inline void* lsm_resize(void* p, size_t n) {
        LsmAllocHead* head;
        void* moved;
        if (p == NULL) return lsm_alloc(n);
        head = lsm_alloc_head(p);
        if (n <= SIZE_MAX - 8192) {
            size_t total = n + sizeof(LsmAllocHead);
            if (!head->mapped && total < LSM_ALLOC_MAPPED) {
                head = (LsmAllocHead*)realloc(head, total);
                if (head == NULL) return NULL;
                head->size = n;
                return head + 1;
            }
    #ifdef MREMAP_MAYMOVE
            if (head->mapped && total >= LSM_ALLOC_MAPPED) {
                total = (total + 4095) & ~(size_t)4095;
                head = (LsmAllocHead*)mremap(head, head->mapped, total, MREMAP_MAYMOVE);
                if ((void*)head == MAP_FAILED) return NULL;
                head->mapped = total;
                head->size = n;
                return head + 1;
            }
    #endif
        }
        moved = lsm_alloc(n);
        if (moved == NULL) return NULL;
        memcpy(moved, p, head->size < n ? head->size : n);
        lsm_free(p);
        return moved;
    }
    #endif
    """
    # At least n bytes, 16-byte aligned, uninitialized, or NULL.
    void* lsm_alloc "lsm_alloc"(size_t n) noexcept
    # Moves the bytes to a piece of n. On NULL the old piece is unchanged. p may be NULL.
    void* lsm_resize "lsm_resize"(void* p, size_t n) noexcept
    void lsm_free "lsm_free"(void* p) noexcept           # NULL is fine
