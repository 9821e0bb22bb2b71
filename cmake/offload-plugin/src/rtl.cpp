//===- rtl.cpp - omptarget-mpi as a plugin of LLVM's offload build --------===//
//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// From LLVM 19 on plugins are classes inside libomptarget. These here hand every
// call on to libomptarget.rtl.mpi.so, which is loaded when a process turns out to
// be part of an MPI job, and which has all the logic.
//
// The interface changes with every release: what differs is told by
// LLVM_VERSION_MAJOR, parameters that were added by the macros SINCE_NN.
//
//===----------------------------------------------------------------------===//

#include "GlobalHandler.h"
#include "PluginInterface.h"
#include "Utils/ELF.h"
#include "omptarget.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Frontend/OpenMP/OMPGridValues.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/TargetParser/Host.h"

#include <cstdlib>
#include <dlfcn.h>

namespace mpi {
#include "omptarget-mpi.h"
} // namespace mpi

using namespace llvm;
using namespace llvm::omp;
using namespace llvm::omp::target::plugin;

#if LLVM_VERSION_MAJOR >= 22
#define SINCE_22(...) , __VA_ARGS__
#else
#define SINCE_22(...)
#endif
#if LLVM_VERSION_MAJOR >= 23
#define SINCE_23(...) , __VA_ARGS__
#else
#define SINCE_23(...)
#endif

namespace {

//===----------------------------------------------------------------------===//
// The library
//===----------------------------------------------------------------------===//

/// What is called of libomptarget.rtl.mpi.so, without the prefix __tgt_rtl_.
#define FOR_EACH_FUNCTION(X)                                                   \
  X(create_event)                                                              \
  X(data_alloc)                                                                \
  X(data_delete)                                                               \
  X(data_exchange_async)                                                       \
  X(data_lock)                                                                 \
  X(data_retrieve_async)                                                       \
  X(data_submit_async)                                                         \
  X(data_unlock)                                                               \
  X(deinit_device)                                                             \
  X(destroy_event)                                                             \
  X(get_function)                                                              \
  X(get_global)                                                                \
  X(init_device)                                                               \
  X(init_device_info)                                                          \
  X(is_valid_binary)                                                           \
  X(launch_kernel)                                                             \
  X(mpi_data_fill_async)                                                       \
  X(mpi_device_info)                                                           \
  X(mpi_load_binary)                                                           \
  X(mpi_query_event)                                                           \
  X(mpi_unload_binary)                                                         \
  X(number_of_devices)                                                         \
  X(query_async)                                                               \
  X(record_event)                                                              \
  X(register_lib)                                                              \
  X(sync_event)                                                                \
  X(synchronize)                                                               \
  X(unregister_lib)                                                            \
  X(wait_event)

/// An error of this plugin.
template <typename... ArgsTy> Error fail(const char *Format, ArgsTy... Args) {
#if LLVM_VERSION_MAJOR >= 21
  return Plugin::error(error::ErrorCode::UNKNOWN, Format, Args...);
#else
  return Plugin::error(Format, Args...);
#endif
}

/// The functions of libomptarget.rtl.mpi.so.
struct LibraryTy {
#define DECLARE(Name) decltype(mpi::__tgt_rtl_##Name) *Name = nullptr;
  FOR_EACH_FUNCTION(DECLARE)
#undef DECLARE

  /// Finds the library beside libomptarget, or where the loader looks else.
  Error load() {
    const char *File = "libomptarget.rtl.mpi.so";
    void *Handle = dlopen(File, RTLD_NOW | RTLD_LOCAL);
    if (!Handle)
      return fail("%s", dlerror());
#define FIND(Name)                                                             \
  Name = reinterpret_cast<decltype(Name)>(dlsym(Handle, "__tgt_rtl_" #Name));  \
  if (!Name)                                                                   \
    return fail("%s has no __tgt_rtl_" #Name, File);
    FOR_EACH_FUNCTION(FIND)
#undef FIND
    return Plugin::success();
  }
};

LibraryTy Library;

/// Turns the status of a call into an error. What failed, where and why was told
/// on stderr by the library.
Error check(int32_t Status, const char *What) {
  if (Status == OFFLOAD_SUCCESS)
    return Plugin::success();
  return fail("%s failed on an MPI device, see above", What);
}

mpi::__tgt_async_info *asMPI(__tgt_async_info *AsyncInfo) {
  return reinterpret_cast<mpi::__tgt_async_info *>(AsyncInfo);
}

/// An image as the library takes it.
mpi::__tgt_device_image
asMPI(const void *Start, size_t Size,
      MutableArrayRef<mpi::__tgt_offload_entry> Entries = {}) {
  char *Bytes = static_cast<char *>(const_cast<void *>(Start));
  return {Bytes, Bytes + Size, Entries.begin(), Entries.end()};
}

/// True if this process may have MPI devices.
bool mayHaveDevices() {
  for (StringRef Name : split(OMPTARGET_MPI_VARIABLES, ' '))
    if (std::getenv(Name.str().c_str()))
      return true;
  return false;
}

//===----------------------------------------------------------------------===//
// Images and kernels
//===----------------------------------------------------------------------===//

struct MPIDeviceImageTy final : public DeviceImageTy {
  using DeviceImageTy::DeviceImageTy;
  mpi::__tgt_device_binary Binary = {};
};

struct MPIKernelTy final : public GenericKernelTy {
  using GenericKernelTy::GenericKernelTy;

  Error initImpl(GenericDeviceTy &, DeviceImageTy &Image) override {
    KernelEnvironment.Configuration.ExecMode = OMP_TGT_EXEC_MODE_GENERIC;
    MaxNumThreads = 1;
    return check(
        Library.get_function(static_cast<MPIDeviceImageTy &>(Image).Binary,
                             getName(), &Entry),
        "finding a kernel");
  }

#if LLVM_VERSION_MAJOR >= 20
#define GRID uint32_t[3], uint32_t[3]
#else
#define GRID uint32_t, uint64_t
#endif
  Error launchImpl(GenericDeviceTy &Device, GRID SINCE_23(uint32_t),
                   KernelArgsTy &KernelArgs, KernelLaunchParamsTy LaunchParams,
                   AsyncInfoWrapperTy &AsyncInfo) const override {
#if LLVM_VERSION_MAJOR >= 23
    SmallVector<void *, 16> Args;
    for (void *Arg : ArrayRef(LaunchParams.Args, LaunchParams.NumArgs))
      Args.push_back(*static_cast<void **>(Arg));
#else
    MutableArrayRef Args(static_cast<void **>(LaunchParams.Data),
                         LaunchParams.Size / sizeof(void *));
#endif
    mpi::KernelArgs Kernel = {KernelArgs.Version, uint32_t(Args.size())};
    return check(Library.launch_kernel(Device.getDeviceId(), Entry, Args.data(),
                                       /*offsets=*/nullptr, &Kernel,
                                       asMPI(AsyncInfo)),
                 "launching a kernel");
  }

#if LLVM_VERSION_MAJOR >= 22
  Expected<uint64_t> maxGroupSize(GenericDeviceTy &, uint64_t) const override {
    return fail("MPI devices have no groups of threads");
  }
#endif

private:
  void *Entry = nullptr;
};

//===----------------------------------------------------------------------===//
// Devices
//===----------------------------------------------------------------------===//

/// As for LLVM's host devices: how many threads there are is libomp's business.
constexpr GV MPIGridValues = {1, 1, 1, 1, 1, 1, 1};

struct MPIDeviceTy final : public GenericDeviceTy {
  MPIDeviceTy(GenericPluginTy &Plugin, int32_t DeviceId, int32_t NumDevices)
      : GenericDeviceTy(Plugin, DeviceId, NumDevices, MPIGridValues) {}

  Error initImpl(GenericPluginTy &) override {
    return check(Library.init_device(DeviceId), "starting");
  }
  Error deinitImpl() override {
    return check(Library.deinit_device(DeviceId), "ending");
  }
  Error setContext() override { return Plugin::success(); }
  std::string getComputeUnitKind() const override { return "mpi"; }

  // Images.

#if LLVM_VERSION_MAJOR >= 22
  Expected<DeviceImageTy *>
  loadBinaryImpl(std::unique_ptr<MemoryBuffer> &&TgtImage,
                 int32_t ImageId) override {
    return load(ImageId, std::move(TgtImage));
  }
#elif LLVM_VERSION_MAJOR >= 20
  Expected<DeviceImageTy *> loadBinaryImpl(const __tgt_device_image *TgtImage,
                                           int32_t ImageId) override {
    // In the layout of earlier releases, which the library knows.
    SmallVector<mpi::__tgt_offload_entry> Entries;
    for (const auto &E : ArrayRef(TgtImage->EntriesBegin, TgtImage->EntriesEnd))
      Entries.push_back({E.Address, E.SymbolName, size_t(E.Size),
                         int32_t(E.Flags), int32_t(E.Data)});
    return load(ImageId, TgtImage, Entries);
  }
#else
  Expected<DeviceImageTy *> loadBinaryImpl(const __tgt_device_image *TgtImage,
                                           int32_t ImageId) override {
    MutableArrayRef Entries(TgtImage->EntriesBegin, TgtImage->EntriesEnd);
    return load(
        ImageId, TgtImage,
        {reinterpret_cast<mpi::__tgt_offload_entry *>(Entries.data()),
         Entries.size()});
  }
#endif

#if LLVM_VERSION_MAJOR >= 21
  Error unloadBinaryImpl(DeviceImageTy *Image) override {
    auto *MPIImage = static_cast<MPIDeviceImageTy *>(Image);
    Error Err = check(Library.mpi_unload_binary(MPIImage->Binary),
                      "unloading an image");
    MPIImage->~MPIDeviceImageTy();
    return Err;
  }
#endif

  Expected<GenericKernelTy &> constructKernel(const char *Name) override {
    return *new (Plugin.allocate<MPIKernelTy>()) MPIKernelTy(Name);
  }

  // Memory.

#if LLVM_VERSION_MAJOR >= 22
  Expected<void *> allocate(size_t Size, void *HostPtr,
                            TargetAllocTy Kind SINCE_23(size_t)) override {
    if (void *Ptr = Library.data_alloc(DeviceId, Size, HostPtr, Kind))
      return Ptr;
    return fail("no room for %zu bytes on an MPI device, see above", Size);
  }
  Error free(void *TgtPtr, TargetAllocTy Kind) override {
    return check(Library.data_delete(DeviceId, TgtPtr, Kind), "freeing");
  }
#else
  void *allocate(size_t Size, void *HostPtr, TargetAllocTy Kind) override {
    return Library.data_alloc(DeviceId, Size, HostPtr, Kind);
  }
  int free(void *TgtPtr, TargetAllocTy Kind) override {
    return Library.data_delete(DeviceId, TgtPtr, Kind);
  }
#endif

  Expected<void *> dataLockImpl(void *HstPtr, int64_t Size) override {
    void *Locked = nullptr;
    if (Error Err = check(Library.data_lock(DeviceId, HstPtr, Size, &Locked),
                          "locking host memory"))
      return std::move(Err);
    return Locked;
  }
  Error dataUnlockImpl(void *HstPtr) override {
    return check(Library.data_unlock(DeviceId, HstPtr),
                 "unlocking host memory");
  }
  Expected<bool> isPinnedPtrImpl(void *, void *&, void *&,
                                 size_t &) const override {
    return false;
  }

  // Transfers.

  Error dataSubmitImpl(void *TgtPtr, const void *HstPtr, int64_t Size,
                       AsyncInfoWrapperTy &AsyncInfo) override {
    return check(Library.data_submit_async(DeviceId, TgtPtr,
                                           const_cast<void *>(HstPtr), Size,
                                           asMPI(AsyncInfo)),
                 "copying to the device");
  }
  Error dataRetrieveImpl(void *HstPtr, const void *TgtPtr, int64_t Size,
                         AsyncInfoWrapperTy &AsyncInfo) override {
    return check(Library.data_retrieve_async(DeviceId, HstPtr,
                                             const_cast<void *>(TgtPtr), Size,
                                             asMPI(AsyncInfo)),
                 "copying from the device");
  }
  Error dataExchangeImpl(const void *SrcPtr, GenericDeviceTy &DstDev,
                         void *DstPtr, int64_t Size,
                         AsyncInfoWrapperTy &AsyncInfo) override {
    return check(Library.data_exchange_async(
                     DeviceId, const_cast<void *>(SrcPtr), DstDev.getDeviceId(),
                     DstPtr, Size, asMPI(AsyncInfo)),
                 "copying between devices");
  }
#if LLVM_VERSION_MAJOR >= 22
  Error dataFillImpl(void *TgtPtr, const void *PatternPtr, int64_t PatternSize,
                     int64_t Size, AsyncInfoWrapperTy &AsyncInfo) override {
    return check(Library.mpi_data_fill_async(DeviceId, TgtPtr, PatternPtr,
                                             PatternSize, Size,
                                             asMPI(AsyncInfo)),
                 "filling device memory");
  }
  Error dataFence(__tgt_async_info *) override {
    return Plugin::success(); // A queue's operations are done in their order.
  }
#endif

  // Queues.

  Error synchronizeImpl(__tgt_async_info &AsyncInfo SINCE_22(bool)) override {
    return check(Library.synchronize(DeviceId, asMPI(&AsyncInfo)),
                 "waiting for a queue");
  }
  Error queryAsyncImpl(__tgt_async_info &AsyncInfo
                           SINCE_23(bool, bool *IsDone)) override {
    Error Err = check(Library.query_async(DeviceId, asMPI(&AsyncInfo)),
                      "querying a queue");
#if LLVM_VERSION_MAJOR >= 23
    if (IsDone)
      *IsDone = !AsyncInfo.Queue;
#endif
    return Err;
  }
#if LLVM_VERSION_MAJOR >= 22
  Expected<bool> hasPendingWorkImpl(AsyncInfoWrapperTy &AsyncInfo) override {
    if (Error Err = check(Library.query_async(DeviceId, asMPI(AsyncInfo)),
                          "querying a queue"))
      return std::move(Err);
    return AsyncInfo.hasQueue();
  }
  Error enqueueHostCallImpl(void (*Callback)(void *), void *UserData,
                            AsyncInfoWrapperTy &AsyncInfo) override {
    // The host has no thread to call it later.
    if (Error Err = check(Library.synchronize(DeviceId, asMPI(AsyncInfo)),
                          "waiting for a queue"))
      return Err;
    Callback(UserData);
    return Plugin::success();
  }
#endif

  Error initAsyncInfoImpl(AsyncInfoWrapperTy &) override {
    return Plugin::success(); // The first operation makes the queue.
  }
#if LLVM_VERSION_MAJOR < 22
  Error initDeviceInfoImpl(__tgt_device_info *Info) override {
    const char *Unused = nullptr;
    return check(Library.init_device_info(
                     DeviceId, reinterpret_cast<mpi::__tgt_device_info *>(Info),
                     &Unused),
                 "making an interop object");
  }
#endif

  // Events.

  Error createEventImpl(void **EventPtr SINCE_23(bool)) override {
    return check(Library.create_event(DeviceId, EventPtr), "making an event");
  }
  Error destroyEventImpl(void *EventPtr SINCE_23(bool)) override {
    return check(Library.destroy_event(DeviceId, EventPtr),
                 "destroying an event");
  }
  Error recordEventImpl(void *EventPtr,
                        AsyncInfoWrapperTy &AsyncInfo SINCE_23(bool)) override {
    return check(Library.record_event(DeviceId, EventPtr, asMPI(AsyncInfo)),
                 "recording an event");
  }
  Error waitEventImpl(void *EventPtr, AsyncInfoWrapperTy &AsyncInfo) override {
    return check(Library.wait_event(DeviceId, EventPtr, asMPI(AsyncInfo)),
                 "waiting for an event");
  }
  Error syncEventImpl(void *EventPtr) override {
    return check(Library.sync_event(DeviceId, EventPtr),
                 "waiting for an event");
  }
#if LLVM_VERSION_MAJOR >= 22
  Expected<bool> isEventCompleteImpl(void *EventPtr,
                                     AsyncInfoWrapperTy &) override {
    bool Complete = false;
    if (Error Err = check(
            Library.mpi_query_event(DeviceId, EventPtr, &Complete),
            "querying an event"))
      return std::move(Err);
    return Complete;
  }
#endif
#if LLVM_VERSION_MAJOR >= 23
  Expected<float> getEventElapsedTimeImpl(void *, void *) override {
    return fail("events of MPI devices have no times");
  }
#endif

  // Properties.

#if LLVM_VERSION_MAJOR >= 21
  Expected<InfoTreeNode> obtainInfoImpl() override {
    InfoTreeNode Info;
    if (Error Err = obtainInfo(Info))
      return std::move(Err);
    return Info;
  }
#else
  Error obtainInfoImpl(InfoQueueTy &Info) override { return obtainInfo(Info); }
#endif

#if LLVM_VERSION_MAJOR < 22
  bool shouldSetupDeviceEnvironment() const override { return false; }
  bool shouldSetupDeviceMemoryPool() const override { return false; }
#endif
  Error getDeviceStackSize(uint64_t &Value) override { return noSize(Value); }
  Error setDeviceStackSize(uint64_t) override { return Plugin::success(); }
  Error getDeviceHeapSize(uint64_t &Value) override { return noSize(Value); }
  Error setDeviceHeapSize(uint64_t) override { return Plugin::success(); }

private:
  template <typename ImageTy>
  Expected<DeviceImageTy *>
  load(int32_t ImageId, ImageTy &&TgtImage,
       MutableArrayRef<mpi::__tgt_offload_entry> Entries = {}) {
    auto *Image = new (Plugin.allocate<MPIDeviceImageTy>())
        MPIDeviceImageTy(ImageId, *this, std::forward<ImageTy>(TgtImage));
    mpi::__tgt_device_image Whole =
        asMPI(Image->getStart(), Image->getSize(), Entries);
    if (Error Err =
            check(Library.mpi_load_binary(DeviceId, &Whole, &Image->Binary),
                  "loading an image"))
      return std::move(Err);
    return Image;
  }

  template <typename InfoTy> Error obtainInfo(InfoTy &Info) {
    auto Tell = [](void *To, const char *Name, const char *Value) {
      static_cast<InfoTy *>(To)->add(Name, std::string(Value));
    };
    return check(Library.mpi_device_info(DeviceId, Tell, &Info),
                 "asking for properties");
  }

  static Error noSize(uint64_t &Value) {
    Value = 0;
    return Plugin::success();
  }
};

//===----------------------------------------------------------------------===//
// The plugin
//===----------------------------------------------------------------------===//

struct MPIGlobalHandlerTy final : public GenericGlobalHandlerTy {
  Error getGlobalMetadataFromDevice(GenericDeviceTy &, DeviceImageTy &Image,
                                    GlobalTy &Global) override {
    void *Address = nullptr;
    if (Error Err = check(
            Library.get_global(static_cast<MPIDeviceImageTy &>(Image).Binary,
                               Global.getSize(), Global.getName().c_str(),
                               &Address),
            "finding a global"))
      return Err;
    Global.setPtr(Address);
    return Plugin::success();
  }
};

struct MPIPluginTy final : public GenericPluginTy {
  MPIPluginTy() : GenericPluginTy(getArch()) {}

  Expected<int32_t> initImpl() override {
    if (!mayHaveDevices())
      return 0;
    if (Error Err = Library.load()) {
      std::string Why = toString(std::move(Err));
#ifdef OMPTARGET_MPI_HAS_LIBRARY
      // LLVM would go on with other devices and not say why.
      errs() << "omptarget-mpi: warning: no MPI devices: " << Why << "\n";
#endif
      return 0;
    }
    // Devices are needed until deinitImpl.
    Library.register_lib(nullptr);
    return Library.number_of_devices();
  }
  Error deinitImpl() override {
    if (!Library.unregister_lib)
      return Plugin::success();
    return check(Library.unregister_lib(nullptr), "ending");
  }

  GenericDeviceTy *createDevice(GenericPluginTy &Plugin, int32_t DeviceId,
                                int32_t NumDevices) override {
    return new MPIDeviceTy(Plugin, DeviceId, NumDevices);
  }
  GenericGlobalHandlerTy *createGlobalHandler() override {
    return new MPIGlobalHandlerTy();
  }

  uint16_t getMagicElfBits() const override {
    return utils::elf::getTargetMachine();
  }
  Triple::ArchType getTripleArch() const override { return getArch(); }
  const char *getName() const override { return GETNAME(TARGET_NAME); }

  Expected<bool> isELFCompatible(uint32_t, StringRef Image) const override {
    mpi::__tgt_device_image Whole = asMPI(Image.data(), Image.size());
    return Library.is_valid_binary(&Whole) != 0;
  }

private:
  /// Devices run images of the machine that libomptarget was built for.
  static Triple::ArchType getArch() {
    return Triple(sys::getProcessTriple()).getArch();
  }
};

} // namespace

extern "C" GenericPluginTy *createPlugin_mpi() { return new MPIPluginTy(); }
