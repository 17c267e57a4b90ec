"""The names that OneFlow 0.9 has, by module: what `python -m sluice.compat` compares Sluice with."""

NAMES = {
    "oneflow": """
        BoolTensor ByteTensor CUDA_MODULE_LOADING CharTensor ComplexDoubleTensor ComplexFloatTensor DoubleTensor
        ExitHook FloatTensor FunctionConfig Generator HalfTensor IntTensor LongTensor Size Tensor abs acos acosh
        adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d add addcdiv addcmul addmm all allclose amax amin amp
        any arange arccos arccosh arcsin arcsinh arctan arctanh argmax argmin argsort argwhere as_strided as_strided_
        as_tensor asin asinh atan atan2 atanh atexit_hook atleast_1d atleast_2d atleast_3d autocast autocast_decorator
        autograd backends baddbmm batch_gather bernoulli bfloat16 bincount bitwise_and bitwise_not bitwise_or
        bitwise_xor bmm bool boxing broadcast_like broadcast_shapes broadcast_tensors broadcast_to cast cat cdouble ceil
        ceil_ cfloat channels_last char chunk clamp clamp_ clamp_max clamp_max_ clamp_min clamp_min_
        clear_autocast_cache clip clip_ clone column_stack comm complex128 complex64 concat conj conj_physical
        contiguous contiguous_format convert_oneflow_dtype_to_numpy_dtype cos cosh cross cumprod cumsum
        default_generator deform_conv2d det device diag diagonal digamma distributed distributed_partial_fc_sample
        distributions div div_ dot double dstack dtype dtypes einsum empty empty_like empty_strided enable_grad eq equal
        erf erfc erfinv erfinv_ exp exp2 expand expm1 eye fft finfo flatten flip float float16 float32 float64 floor
        floor_ floor_divide fmod frac frac_ from_dlpack from_numpy frombuffer full full_like function_config fx gather
        gather_nd ge gelu gen_tensor_buffer get_autocast_cpu_dtype get_autocast_gpu_dtype get_default_dtype
        get_rng_state global_to_global greater greater_equal gt gt_ half hann_window hook hsplit hstack hub ignore iinfo
        imag in_top_k index_add index_add_ index_select inference_mode initial_seed int int16 int32 int64 int8 interface
        inverse is_autocast_cache_enabled is_autocast_enabled is_deprecated is_floating_point is_grad_enabled is_nonzero
        is_scripting is_tensor is_tracing isclose isfinite isinf isnan layout le lerp lerp_ lgamma linalg linspace load
        local_to_global log log10 log1p log2 log_softmax logaddexp logical_and logical_not logical_or logical_xor
        logspace logsumexp long lt manual_seed masked_fill masked_fill_ masked_select matmul max maximum mean median
        memory_format meshgrid min minimum mish mm mode movedim mul multinomial mv nansum narrow ne neg negative
        new_empty new_full new_ones new_zeros nms no_grad nonzero norm normal normal_ not_equal numel oneflow_deprecate
        oneflow_internal_path oneflow_python_base_dir ones ones_like optim pad permute placement pow preserve_format
        prod quantile quick_gelu rand randint randint_like randn randn_like randperm real reciprocal record relu repeat
        repeat_interleave reshape roc_auc_score roi_align roll round round_ row_stack rsqrt save sbp scatter scatter_add
        scatter_nd script searchsorted seed select selu set_autocast_cache_enabled set_autocast_cpu_dtype
        set_autocast_enabled set_autocast_gpu_dtype set_default_dtype set_default_tensor_type set_grad_enabled
        set_num_threads set_printoptions set_rng_state short sigmoid sign silu sin sin_ sinh slice slice_update softmax
        softplus softshrink softsign sort special split sqrt square square_relu squeeze stack stateful_op std stft
        strided sub sum swapaxes swapdims t tan tanh tensor tensor_buffer tensor_buffer_to_list_of_tensors
        tensor_buffer_to_tensor tensor_scatter_nd_update tensor_split tensor_to_tensor_buffer tensordot threshold tile
        to_dlpack to_global to_local topk transpose tril triu trunc uint8 unbind unique unsqueeze unused
        use_deterministic_algorithms var view vsplit vstack where zero_ zeros zeros_like
    """,
    "oneflow.Tensor": """
        T __array__ __bool__ __contains__ __float__ __format__ __iadd__ __index__ __int__ __repr__ __str__
        _copy_from_numpy _copy_to_numpy _meta_repr _ref_index _ref_tensor _register_post_grad_accumulation_hook
        _register_storage_delete_hook _tensor_buffer_shapes_and_dtypes _zero_grad_ abs acos acosh add add_ addcdiv
        addcdiv_ addcmul addcmul_ addmm all allclose amax amin any arccos arccosh arcsin arcsinh arctan arctanh argmax
        argmin argsort argwhere as_strided as_strided_ asin asinh atan atan2 atanh backward baddbmm bernoulli bernoulli_
        beta bfloat16 bincount bitwise_and bitwise_not bitwise_or bitwise_xor bmm bool broadcast_to byte cast ceil ceil_
        check_meta_consistency chunk clamp clamp_ clamp_max clamp_max_ clamp_min clamp_min_ clip clip_ clone conj
        conj_physical contiguous contiguous_ copy copy_ cos cosh cpu cross cuda cumprod cumsum data data_ptr detach
        device diag diagonal digamma dim dim0 div div_ dot double dtype element_size eq equal erf erfc erfinv erfinv_
        exp exp2 expand expand_as expm1 exponential_ fill_ flatten flip float floor floor_ floor_divide fmod frac frac_
        gather ge gelu get_device global_id global_to_global grad grad_fn gt gt_ half idx imag in_top_k index_add
        index_add_ index_select int inverse is_consistent is_contiguous is_cpu is_cuda is_eager is_floating_point
        is_global is_lazy is_leaf is_local is_offloaded is_pinned is_view isclose isinf isnan item kaiming_normal_
        kaiming_uniform_ layout le lerp lerp_ load local_to_global log log10 log1p log2 log_softmax logaddexp
        logical_and logical_not logical_or logical_xor logsumexp long lt masked_fill masked_fill_ masked_select matmul
        max maximum mean median min minimum mish mm mode mul mul_ mv nansum narrow ndim ndimension ne neg negative
        nelement new new_empty new_full new_ones new_tensor new_zeros nms nonzero norm normal_ numel numpy offload
        offset orthogonal_ other permute pin_memory placement pow prod quantile real reciprocal register_hook relu relu_
        repeat repeat_interleave requires_grad requires_grad_ reshape reshape_as retain_grad roll round round_ rsqrt sbp
        scatter scatter_ scatter_add scatter_add_ selu set_to_none shape sigmoid sign silu sin sin_ sinh size softmax
        softplus softsign sort split sqrt square squeeze squeeze_ std storage storage_offset stride sub sub_ sum
        swapaxes swapdims t tan tanh tile to to_consistent to_global to_local to_numpy tolist topk transpose tril tril_
        triu triu_ trunc trunc_normal_ type type_as unbind unfold uniform_ unique unsqueeze unsqueeze_ var view view_as
        where xavier_normal_ xavier_uniform_ zero_
    """,
    "oneflow.nn": """
        AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d
        AllReduce AvgPool1d AvgPool2d AvgPool3d BCELoss BCEWithLogitsLoss BatchNorm1d BatchNorm2d BatchNorm3d CELU
        COCOReader CTCLoss CoinFlip CombinedMarginLoss ConstantPad1d ConstantPad2d ConstantPad3d Conv1d Conv2d Conv3d
        ConvTranspose1d ConvTranspose2d ConvTranspose3d CosineSimilarity CropMirrorNormalize CrossEntropyLoss
        DataParallel DistributedPariticalFCSample Dropout Dropout1d Dropout2d Dropout3d ELU Embedding FakeQuantization
        Flatten Fold FusedBatchNorm1d FusedBatchNorm2d FusedBatchNorm3d FusedMLP GELU GLU GPTIndexedBinDataReader GRU
        GRUCell Graph GroupNorm Hardshrink Hardsigmoid Hardswish Hardtanh Identity InstanceNorm1d InstanceNorm2d
        InstanceNorm3d KLDivLoss L1Loss LSTM LSTMCell LayerNorm LeakyReLU Linear LogSigmoid LogSoftmax MSELoss
        MarginRankingLoss MaxPool1d MaxPool2d MaxPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d MinMaxObserver Mish
        ModuleDict ModuleList MovingAverageMinMaxObserver NLLLoss OFRecordBytesDecoder OFRecordImageDecoder
        OFRecordImageDecoderRandomCrop OFRecordImageGpuDecoderRandomCropResize OFRecordRawDecoder OFRecordReader
        OfrecordRawDecoder OfrecordReader PReLU PairwiseDistance Parameter ParameterDict ParameterList PixelShuffle
        QatConv1d QatConv2d QatConv3d Quantization QuickGELU RMSLayerNorm RMSNorm RNN RNNBase RNNCell RNNCellBase RReLU
        RawReader ReLU ReLU6 ReflectionPad1d ReflectionPad2d ReplicationPad1d ReplicationPad2d SELU Sequential SiLU
        Sigmoid SmoothL1Loss Softmax Softplus Softshrink Softsign SquareReLU SyncBatchNorm Tanh Threshold
        TripletMarginLoss Unfold Upsample UpsamplingBilinear2d UpsamplingNearest2d ZeroPad2d
    """,
    "oneflow.nn.functional": """
        adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d
        adaptive_max_pool3d affine_grid avg_pool1d avg_pool2d avg_pool3d batch_norm binary_cross_entropy
        binary_cross_entropy_with_logits celu conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
        cosine_similarity cross_entropy ctc_greedy_decoder ctc_loss deform_conv2d depend dropout dropout1d dropout2d
        dropout3d elu embedding fold gelu glu grid_sample group_norm gumbel_softmax hardshrink hardsigmoid hardswish
        hardtanh interpolate interpolate_like kl_div l1_loss layer_norm leaky_relu linear log_softmax logsigmoid
        max_pool1d max_pool2d max_pool3d max_unpool1d max_unpool2d max_unpool3d mish mse_loss normalize one_hot pad
        pairwise_distance prelu quick_gelu relu relu6 rrelu rrelu_ selu sigmoid silu smooth_l1_loss softmax softplus
        softshrink softsign sparse_softmax_cross_entropy square_relu tanh threshold triplet_margin_loss unfold upsample
    """,
    "oneflow.nn.init": """
        calc_fan calculate_gain constant_ eye_ get_data_format kaiming_normal_ kaiming_uniform_ normal_ ones_
        orthogonal_ trunc_normal_ uniform_ xavier_normal_ xavier_uniform_ zeros_
    """,
    "oneflow.nn.utils": """
        ContiguousParamsGroup clip_grad_norm_ clip_grad_value_ parameters_to_vector remove_weight_norm skip_init
        vector_to_parameters weight_norm
    """,
    "oneflow.nn.utils.rnn": """
        PackedSequence pack_padded_sequence pack_sequence pad_packed_sequence pad_sequence reverse unpack_sequence
        unpad_sequence
    """,
    "oneflow.nn.parallel": """
        DistributedDataParallel
    """,
    "oneflow.nn.image": """
        Resize batch_align decode flip normalize
    """,
    "oneflow.optim": """
        Adadelta Adagrad Adam AdamW LAMB LBFGS Optimizer RMSprop SGD
    """,
    "oneflow.optim.lr_scheduler": """
        ChainedScheduler ConstantLR CosineAnnealingLR CosineAnnealingWarmRestarts CosineDecayLR ExponentialLR LambdaLR
        LinearLR MultiStepLR MultiplicativeLR PolynomialLR ReduceLROnPlateau SequentialLR StepLR WarmUpLR WarmupLR
    """,
    "oneflow.autograd": """
        Function backward enable_grad grad hessian hvp inference_mode is_grad_enabled jacobian jvp no_grad
        set_grad_enabled vhp vjp
    """,
    "oneflow.autograd.functional": """
        hessian hvp jacobian jvp vhp vjp
    """,
    "oneflow.autograd.graph": """
        saved_tensors_hooks
    """,
    "oneflow.amp": """
        GradScaler StaticGradScaler autocast autocast_decorator
    """,
    "oneflow.linalg": """
        cross det diagonal inv matrix_norm norm solve vector_norm
    """,
    "oneflow.fft": """
        fft fft2 fftn hfft hfft2 hfftn ifft ifft2 ifftn ihfft ihfft2 ihfftn irfft irfft2 irfftn rfft rfft2 rfftn
    """,
    "oneflow.special": """
        digamma erf erfc erfinv exp2 expm1 log1p log_softmax logsumexp psi round softmax zeta
    """,
    "oneflow.distributions": """
        Categorical Distribution
    """,
    "oneflow.utils.data": """
        BatchSampler ConcatDataset DataLoader Dataset DistributedSampler IterDataPipe IterableDataset RandomSampler
        Sampler SequentialSampler Subset SubsetRandomSampler TensorDataset functional_datapipe
        guaranteed_datapipes_determinism non_deterministic random_split
    """,
    "oneflow.utils.checkpoint": """
        checkpoint
    """,
    "oneflow.distributed": """
        ReduceOp all_gather all_reduce all_to_all barrier broadcast default_pg_timeout gather get_local_rank get_rank
        get_world_size is_available is_initialized recv reduce reduce_scatter send
    """,
    "oneflow.comm": """
        all_gather all_gather_into_tensor all_reduce all_to_all barrier broadcast gather recv reduce reduce_scatter
        reduce_scatter_tensor scatter send
    """,
    "oneflow.env": """
        all_device_placement destory_rdma get_local_rank get_node_size get_rank get_world_size init_rdma
        rdma_is_initialized
    """,
    "oneflow.sbp": """
        broadcast partial_sum sbp split
    """,
    "oneflow.global_view": """
        current_global_mode global_mode to_global to_local
    """,
    "oneflow.nn.Graph": """
        __call__ __init__ __repr__ add_optimizer build build_graph debug enable_save_runtime_state_dict enable_shared
        finish_compile_and_init_runtime is_compiled load_runtime_state_dict load_state_dict name runtime_state_dict
        runtime_state_dict_to set_grad_scaler share_from state_dict trace training with_dynamic_input_shape
    """,
    "oneflow.nn.Graph.config": """
        allow_fuse_add_to_output allow_fuse_cast_scale allow_fuse_model_update_ops enable_amp enable_auto_memory
        enable_auto_parallel enable_auto_parallel_ignore_user_sbp_config enable_auto_parallel_sbp_collector
        enable_auto_parallel_trunk_algo enable_choose_best_memory_allocation enable_compress_memory
        enable_cudnn_conv_heuristic_search_algo enable_fused_model_update_cast enable_multi_tensor_update
        enable_straighten_algorithm enable_zero set_auto_parallel_computation_cost_ratio set_auto_parallel_wait_time
        set_gradient_accumulation_steps set_outputs_buffer_size set_zero_redundancy_optimizer_mode training
    """,
    "oneflow.profiler": """
        ProfilerAction ProfilerActivity kineto_available profile profiler_start profiler_stop range_pop range_push
        record_function tensorboard_trace_handler
    """,
    "oneflow.mock_torch": """
        DummyModule DynamicMockModule ModuleWrapper disable enable
    """,
    "oneflow.hub": """
        download_url_to_file get_dir help list load load_state_dict_from_url set_dir
    """,
    "oneflow.jit": """
        ignore interface is_scripting is_tracing script unused
    """,
    "oneflow.asyncs": """
        Thread thread
    """,
    "oneflow.multiprocessing": """
        get_all_sharing_strategies get_sharing_strategy set_sharing_strategy unlink_all_shared_memory
    """,
    "oneflow.cuda": """
        BoolTensor ByteTensor CharTensor ComplexDoubleTensor ComplexFloatTensor DoubleTensor Event FloatTensor
        HalfTensor IntTensor LongTensor current_device default_generators device_count empty_cache get_device_capability
        get_device_name get_device_properties get_rng_state get_rng_state_all is_available manual_seed manual_seed_all
        mem_get_info set_device set_rng_state set_rng_state_all synchronize
    """,
    "oneflow.model": """
        Callback CheckpointConfig DataModule Model NumpyDataModule TrainingConfig ValidationConfig
    """,
    "oneflow.remat": """
        get_budget is_small_pieces_optimization_enabled parse_size set_budget set_small_pieces_optimization
    """,
    "oneflow.one_embedding": """
        Embedding Ftrl MultiTableEmbedding MultiTableMultiColumnEmbedding OneEmbeddingHandler PersistentTableReader
        PersistentTableWriter SmartDecayAdam make_cached_host_mem_store_options make_cached_ssd_store_options
        make_column_options make_constant_initializer make_device_mem_store_options make_normal_initializer
        make_persistent_table_reader make_persistent_table_writer make_table make_table_options
        make_trunc_normal_initializer make_uniform_initializer
    """,
}
