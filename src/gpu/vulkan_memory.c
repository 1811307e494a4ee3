/* vulkan_memory.c - asks Vulkan for the memory of an adapter.
 *
 * Only for people to read: a program that lists devices shows it, nothing is decided by it.  The few declarations are
 * those of Vulkan 1.0, which never change. */
#include "gpu/vulkan_memory.h"
#include "base/base.h"

#include <string.h>

#if defined(_WIN32)
static const char file_name[] = "vulkan-1.dll";
#else
static const char file_name[] = "libvulkan.so.1";
#endif

enum { MAX_DEVICES = 32, VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO = 1, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT = 1 };

typedef struct VkInstance_T *VkInstance;
typedef struct VkPhysicalDevice_T *VkPhysicalDevice;

typedef struct VkInstanceCreateInfo {
  uint32_t sType;
  const void *pNext;
  uint32_t flags;
  const void *pApplicationInfo;
  uint32_t enabledLayerCount;
  const char *const *ppEnabledLayerNames;
  uint32_t enabledExtensionCount;
  const char *const *ppEnabledExtensionNames;
} VkInstanceCreateInfo;

typedef struct VkPhysicalDeviceProperties {
  uint32_t apiVersion, driverVersion, vendorID, deviceID, deviceType;
  char deviceName[256];
  uint64_t others[128]; /* room for what follows: it takes less than 600 bytes */
} VkPhysicalDeviceProperties;

typedef struct VkPhysicalDeviceMemoryProperties {
  uint32_t memoryTypeCount;
  struct {
    uint32_t propertyFlags, heapIndex;
  } memoryTypes[32];
  uint32_t memoryHeapCount;
  struct {
    uint64_t size;
    uint32_t flags;
  } memoryHeaps[16];
} VkPhysicalDeviceMemoryProperties;

#define VULKAN_FUNCTIONS(X)                                                                                            \
  X(int, CreateInstance, (const VkInstanceCreateInfo *, const void *, VkInstance *))                                   \
  X(void, DestroyInstance, (VkInstance, const void *))                                                                 \
  X(int, EnumeratePhysicalDevices, (VkInstance, uint32_t *, VkPhysicalDevice *))                                       \
  X(void, GetPhysicalDeviceProperties, (VkPhysicalDevice, VkPhysicalDeviceProperties *))                               \
  X(void, GetPhysicalDeviceMemoryProperties, (VkPhysicalDevice, VkPhysicalDeviceMemoryProperties *))

typedef struct vulkan {
#define FUNCTION_FIELD(result, name, parameters) result(*name) parameters;
  VULKAN_FUNCTIONS(FUNCTION_FIELD)
#undef FUNCTION_FIELD
} vulkan;

static bool load_functions(vulkan *vk, void *library) {
  void *symbol;
#define LOAD_FUNCTION(result, name, parameters)                                                                        \
  symbol = weft__dynlib_symbol(library, "vk" #name);                                                                   \
  if (!symbol) return false;                                                                                           \
  memcpy(&vk->name, &symbol, sizeof symbol);
  VULKAN_FUNCTIONS(LOAD_FUNCTION)
#undef LOAD_FUNCTION
  return true;
}

static uint64_t largest_local_heap(const vulkan *vk, VkPhysicalDevice device) {
  VkPhysicalDeviceMemoryProperties memory = {0};
  uint64_t largest = 0;
  vk->GetPhysicalDeviceMemoryProperties(device, &memory);
  for (uint32_t i = 0; i < memory.memoryHeapCount && i < WEFT_COUNT(memory.memoryHeaps); i++)
    if ((memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) && memory.memoryHeaps[i].size > largest)
      largest = memory.memoryHeaps[i].size;
  return largest;
}

static uint64_t find_device(const vulkan *vk, VkInstance instance, uint32_t vendor_id, uint32_t device_id,
                            const char *name) {
  VkPhysicalDevice devices[MAX_DEVICES];
  uint32_t n = MAX_DEVICES;
  if (vk->EnumeratePhysicalDevices(instance, &n, devices) < 0) return 0;
  for (uint32_t i = 0; i < n; i++) {
    VkPhysicalDeviceProperties properties = {0};
    vk->GetPhysicalDeviceProperties(devices[i], &properties);
    bool is_it = properties.vendorID == vendor_id && properties.deviceID == device_id &&
                 strncmp(properties.deviceName, name, sizeof properties.deviceName) == 0;
    if (is_it) return largest_local_heap(vk, devices[i]);
  }
  return 0;
}

uint64_t weft__vulkan_memory_bytes(uint32_t vendor_id, uint32_t device_id, const char *name) {
  VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
  VkInstance instance;
  vulkan vk;
  uint64_t n_bytes = 0;
  void *library = NULL;
  if (weft__dynlib_open(&library, file_name) != WEFT_OK) return 0;
  if (load_functions(&vk, library) && vk.CreateInstance(&info, NULL, &instance) == 0) {
    n_bytes = find_device(&vk, instance, vendor_id, device_id, name);
    vk.DestroyInstance(instance, NULL);
  }
  weft__dynlib_close(library);
  return n_bytes;
}
