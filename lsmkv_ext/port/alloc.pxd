# malloc, realloc and free for what background work takes and gives back: buffers of a table in the making, the index of an
# open one. Large pieces have pages of their own, which go back to the system at once. malloc would keep them: what a thread
# frees stays in that thread's heap, below whatever still lives there, and each large piece freed raises the size from which
# malloc would map one; a fill of ten million records held forty mebibytes that way.
#
# A sanitizer build takes all of it from malloc, where an access past the end is seen.

cdef extern from * nogil:
    """
    #ifndef LSMKV_ALLOC_H
    #define LSMKV_ALLOC_H
    #include <stdint.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/mman.h>
    #if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    #define LSM_ALLOC_MAPPED SIZE_MAX
    #else
    #define LSM_ALLOC_MAPPED ((size_t)64 << 10)
    #endif
    /* stands in front of every piece */
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
            head = (LsmAllocHead*)mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if ((void*)head == MAP_FAILED) return NULL;
            head->mapped = total;
        }
        head->size = n;
        return head + 1;
    }

    static inline void lsm_free(void* p) {
        LsmAllocHead* head;
        if (p == NULL) return;
        head = lsm_alloc_head(p);
        if (head->mapped) munmap(head, head->mapped);
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
    # At least n bytes, 16-byte aligned, or NULL. What they hold is not said.
    void* lsm_alloc "lsm_alloc"(size_t n) noexcept
    # The same bytes in a piece of n; NULL leaves the old one as it was. p may be NULL.
    void* lsm_resize "lsm_resize"(void* p, size_t n) noexcept
    void lsm_free "lsm_free"(void* p) noexcept           # NULL is fine
