"""All estimators keep the conventions of scikit-learn."""

import pytest
from sklearn.linear_model import LinearRegression
from sklearn.svm import SVR
from sklearn.utils.estimator_checks import estimator_checks_generator

import bsvr_pp as bp

ESTIMATORS = (
    bp.BayesianSVR(kernel="rbf", ard=False, inference="mean_field", restarts=1, random_state=0),
    bp.BayesianSVC(kernel="rbf", ard=False, random_state=0),
    bp.LSSVR(),
    bp.BayesianLSSVR(),
    bp.ResidualIntervals(SVR(), cv=2),
    bp.ResidualIntervals(LinearRegression(), cv=2),
)
SLOW = (
    bp.BayesianSVR(restarts=1, random_state=0),
    bp.BayesianSVC(random_state=0),
    bp.BayesianOrdinalSVC(kernel="rbf", restarts=1),
    bp.BayesianSVR(kernel="precomputed", inference="mean_field", restarts=1, random_state=0),
    bp.BayesianSVC(kernel="precomputed", probability="mean", random_state=0),
    bp.BayesianOrdinalSVC(kernel="precomputed", restarts=1),
)
NO_KERNEL = {  # checks that fit what is no matrix of a kernel
    *("check_positive_only_tag_during_fit", "check_estimators_dtypes"),
    *("check_classifiers_one_label_sample_weights", "check_decision_proba_consistency"),
}
NO_DIAGONAL = {  # checks that ask for probabilities where the diagonal is not constant
    *("check_classifiers_train", "check_methods_sample_order_invariance", "check_methods_subset_invariance"),
    *("check_dict_unchanged", "check_fit_idempotent"),
}
SAME = {  # checks of what all estimators do in the same way: fast for those of least squares, slow for the others
    *("check_estimators_dtypes", "check_estimators_pickle", "check_estimator_sparse_tag", "check_fit2d_1feature"),
    *("check_dont_overwrite_parameters", "check_estimators_overwrite_params", "check_sample_weights_shape"),
    *("check_sample_weight_equivalence_on_dense_data", "check_regressor_multioutput", "check_fit_idempotent"),
    *("check_f_contiguous_array_estimator", "check_regressors_no_decision_function", "check_fit_score_takes_y"),
    *("check_methods_subset_invariance", "check_pipeline_consistency"),
    *("check_n_features_in_after_fitting", "check_positive_only_tag_during_fit", "check_supervised_y_2d"),
    *("check_regressor_data_not_an_array", "check_regressors_int", "check_regressors_train"),
    *("check_sample_weight_equivalence_on_sparse_data", "check_sample_weights_list"),
}
LONG = {
    *("check_class_weight_classifiers", "check_classifiers_train", "check_dtype_object"),
    *("check_estimator_sparse_array", "check_estimator_sparse_matrix"),
}


def checks():
    """Checks of each estimator, of which some take long."""
    for made in (*ESTIMATORS, *SLOW):
        for estimator, check in estimator_checks_generator(made):
            name = getattr(check, "func", check).__name__
            if getattr(made, "kernel", None) == "precomputed" and (
                name in NO_KERNEL or (isinstance(made, bp.BayesianOrdinalSVC) and name in NO_DIAGONAL)
            ):
                continue
            same = name in SAME and isinstance(made, bp.BayesianSVR | bp.BayesianSVC)
            slow = same or name in LONG or any(made is each for each in SLOW)
            label = f"{type(made).__name__}-{name}"
            yield pytest.param(estimator, check, id=label, marks=[pytest.mark.slow] if slow else [])


@pytest.mark.filterwarnings("ignore::bsvr_pp.ConvergenceWarning")
@pytest.mark.parametrize(("estimator", "check"), list(checks()))
def test_scikit_learn_accepts_it(estimator, check):
    check(estimator)
